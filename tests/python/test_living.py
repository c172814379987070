# SPDX-License-Identifier: BSD-3-Clause
"""The probe finds the objects of a class without holding others.

usage: test_living.py [unittest's options]
environment: DDP_DOCTOR=bin/ddp-doctor
"""
import gc
import os
import pathlib
import sys
import unittest
from unittest import mock

PROBE = pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor" / "python"
sys.path.insert(0, str(PROBE))

from ddp_doctor_probe.living import living  # noqa: E402


class Module:
    pass


class Tensor:
    pass


class Living(unittest.TestCase):
    def test_are_those_of_subclasses_too_and_no_classes(self):
        class Layer(Module):
            __slots__ = ()

        kept = [Module(), Layer(), Layer()]
        found = living(Module)
        self.assertEqual({id(one) for one in found}, {id(one) for one in kept})

    def test_are_found_without_holding_a_tensor(self):
        tensor = Tensor()
        model = Module()
        model.weight = tensor
        with mock.patch.object(gc, "get_objects", side_effect=AssertionError("every object is held for a moment")):
            found = living(Module)
        self.assertEqual(found, [model])
        self.assertNotIn(tensor, found)


if __name__ == "__main__":
    unittest.main()
