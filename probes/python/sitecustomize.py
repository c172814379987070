# SPDX-License-Identifier: BSD-3-Clause
"""`ddp-doctor run` puts this first on PYTHONPATH. Starts the probe, then runs the sitecustomize that this one shadows."""
import importlib.machinery
import importlib.util
import os
import sys


def _start_probe():
    try:
        import ddp_doctor_probe

        ddp_doctor_probe.start()
    except Exception as error:  # must not stop the program
        print(f"ddp-doctor: the probe did not start: {error!r}", file=sys.stderr)


def _run_shadowed():
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start_probe()
_run_shadowed()
