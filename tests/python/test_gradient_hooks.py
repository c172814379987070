# SPDX-License-Identifier: BSD-3-Clause
"""What the probe says of a hook on a parameter, by the gradient before and after it.

usage: test_gradient_hooks.py [unittest's options]
environment: DDP_DOCTOR=bin/ddp-doctor
"""
import os
import pathlib
import sys
import unittest

import torch

PROBE = pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor" / "python"
sys.path.insert(0, str(PROBE))

from ddp_doctor_probe.gradient_hooks import change_between  # noqa: E402


class ChangeBetween(unittest.TestCase):
    def setUp(self):
        self.gradient = torch.randn(40, 10, generator=torch.Generator().manual_seed(0)).double()

    def kind(self, after):
        change = change_between(self.gradient, after)
        return change and change[0]

    def test_elements_cut_to_one_size_are_clamped(self):
        self.assertEqual(change_between(self.gradient, self.gradient.clamp(-0.25, 0.25)), ("clamped", 0.25))
        self.assertEqual(self.kind(self.gradient.clamp(max=0.25)), "clamped")

    def test_a_norm_that_shrinks_is_scaled(self):
        norm = float(self.gradient.norm())
        name, norms = change_between(self.gradient, self.gradient / norm)
        self.assertEqual(name, "scaled")
        self.assertAlmostEqual(norms[0], norm, 6)
        self.assertAlmostEqual(norms[1], 1.0, 6)

    def test_what_clips_nothing(self):
        for name, after in {
            "nothing": self.gradient, "limits that nothing reaches": self.gradient.clamp(-100, 100), "a mask": self.gradient * (self.gradient > 0),
            "a larger factor": 2 * self.gradient, "the sign": self.gradient.sign(), "noise": self.gradient + torch.rand(40, 10),
            "another direction": -self.gradient, "a floor": self.gradient.clamp(min=0.25), "no gradient": 0 * self.gradient,
        }.items():
            with self.subTest(name):
                self.assertIsNone(self.kind(after))


if __name__ == "__main__":
    unittest.main()
