# SPDX-License-Identifier: BSD-3-Clause
"""The structures that the probe and its built-in functions (probes/python/builtins.cpp) share have the same size on both sides.

usage: test_shared_structures.py [unittest's options]
environment: DDP_DOCTOR=bin/ddp-doctor
"""
import ctypes
import os
import pathlib
import sys
import unittest

LIBEXEC = pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor"
sys.path.insert(0, str(LIBEXEC / "python"))

from ddp_doctor_probe import backwards, native, session, tensors  # noqa: E402, F401 (session loads the others in their order)


class SharedStructures(unittest.TestCase):
    def test_have_one_size(self):
        size_of = ctypes.CDLL(str(LIBEXEC / "libddp-doctor-probe.so")).ddpd_size_of
        size_of.restype = ctypes.c_int64
        for shared in (backwards.Backwards, tensors.Entry, native.Row):
            with self.subTest(shared.__name__):
                self.assertEqual(ctypes.sizeof(shared), size_of(shared.__name__.encode()))


if __name__ == "__main__":
    unittest.main()
