# SPDX-License-Identifier: BSD-3-Clause
"""The guard around the probe's methods: calls of other threads wait and count, calls that the probe makes itself do not. What it replaces is not seen
in warnings.

usage: test_passive.py [unittest's options]
environment: DDP_DOCTOR=bin/ddp-doctor
"""
import ast
import os
import pathlib
import sys
import threading
import unittest
import warnings

PROBE = pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor" / "python"
sys.path.insert(0, str(PROBE))

from ddp_doctor_probe import patches  # noqa: E402
from ddp_doctor_probe.passive import passive  # noqa: E402
from ddp_doctor_probe.session import Session  # noqa: E402


class Part:
    """Stands for a part of a session, and for the session."""

    busy = Session.busy

    def __init__(self):
        self.session, self.closed, self.probe_ns = self, False, 0
        self.turn, self.owner = threading.Lock(), 0
        self.seen, self.failures = [], []
        self.inside, self.go_on = threading.Event(), threading.Event()

    def failed(self, where, error):
        self.failures.append((where, str(error)))

    @passive
    def waits(self):
        self.inside.set()
        self.go_on.wait(30)
        self.seen.append("waits")

    @passive
    def counts(self):
        self.seen.append("counts")

    @passive
    def calls_itself(self):
        self.counts()
        self.seen.append("calls_itself")

    @passive
    def fails(self):
        raise ValueError("no such tensor")


class Library:
    def deprecated(self):
        warnings.warn("use another one", FutureWarning, stacklevel=2)


class Replaced(unittest.TestCase):
    def test_a_warning_names_the_line_that_called_what_is_replaced(self):
        def passes_on(original):
            def deprecated(self):
                return original(self)

            return deprecated

        patches._replace(Library, "deprecated", passes_on)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            Library().deprecated()
        self.assertEqual([warning.filename for warning in seen], [__file__])


def methods_and_fields(kind):
    """Names of a class' methods, and of what is assigned to `self` in them."""
    fields = [node.attr for node in ast.walk(kind) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
              and isinstance(node.value, ast.Name) and node.value.id == "self"]
    return {method.name for method in kind.body if isinstance(method, ast.FunctionDef)}, set(fields)


class Parts(unittest.TestCase):
    def test_no_field_hides_a_method_that_the_program_reaches(self):
        for file in PROBE.glob("ddp_doctor_*/*.py"):
            for kind in [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)]:
                methods, fields = methods_and_fields(kind)
                self.assertEqual(methods & fields, set(), f"{file.name}: {kind.name}")


class Passive(unittest.TestCase):
    def test_a_call_of_another_thread_waits_and_counts(self):
        part = Part()
        first = threading.Thread(target=part.waits)
        first.start()
        self.assertTrue(part.inside.wait(30))
        second = threading.Thread(target=part.counts)
        second.start()
        second.join(0.2)
        self.assertTrue(second.is_alive())
        part.go_on.set()
        first.join(30)
        second.join(30)
        self.assertEqual(part.seen, ["waits", "counts"])

    def test_what_the_probe_calls_is_not_observed(self):
        part = Part()
        part.calls_itself()
        part.counts()
        self.assertEqual(part.seen, ["calls_itself", "counts"])

    def test_a_failure_stays_inside_and_the_next_call_counts(self):
        part = Part()
        self.assertIsNone(part.fails())
        self.assertEqual(part.failures, [("fails", "no such tensor")])
        part.counts()
        self.assertEqual(part.seen, ["counts"])


if __name__ == "__main__":
    unittest.main()
