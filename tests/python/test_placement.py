# SPDX-License-Identifier: BSD-3-Clause
"""ddp_doctor.placement() in a program: a no-op without ddp-doctor, and a statement with it.

usage: DDP_DOCTOR=path/to/ddp-doctor python3 test_placement.py [-v] [TEST...]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DOCTOR = os.environ.get("DDP_DOCTOR")
PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "probes" / "python"
DEADLINE = 180  # seconds

# Each rank has a layer of its own, of which nothing is reduced.
PROGRAM = """
import sys

import ddp_doctor
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
group = dist.new_group([0, 1])
layer = torch.nn.Linear(4, 4, bias=False)
statement = {"none": {}, "shard": {group: "shard"}, "typing-error": {group: "shrad"}}[sys.argv[1]]
teacher = ddp_doctor.placement(torch.nn.LayerNorm(4), {group: "replicate"})
assert ddp_doctor.placement(layer, {group: "replicate"}) is layer
ddp_doctor.placement(layer.weight, statement)  # the inner one decides
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    layer(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""


def run(statement):
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-test-") as name:
        program = pathlib.Path(name) / "train.py"
        program.write_text(PROGRAM)
        done = subprocess.run([DOCTOR, "run", "--format", "json", "--python", sys.executable, str(program), "--", statement],
                              capture_output=True, text=True, timeout=DEADLINE)
        return json.loads(done.stdout)


class Placement(unittest.TestCase):
    def test_does_nothing_without_the_tool(self):
        lines = ("import sys, ddp_doctor", "part = object()", "assert ddp_doctor.placement(part, {'tp': 'anything'}) is part",
                 "assert not {'torch', 'importlib.metadata', 'ddp_doctor_probe'} & set(sys.modules)")
        subprocess.run([sys.executable, "-S", "-c", "\n".join(lines)], check=True, timeout=DEADLINE, env=dict(os.environ, PYTHONPATH=str(PACKAGE)))

    @unittest.skipUnless(DOCTOR, "DDP_DOCTOR is not set")
    def test_a_shard_is_compared_with_nobody(self):
        report = run("shard")
        self.assertEqual(report["verdict"], "healthy", report["runs"][0]["notes"])
        self.assertEqual(report["runs"][0]["coverage"]["sharded"], 1)

    @unittest.skipUnless(DOCTOR, "DDP_DOCTOR is not set")
    def test_replicas_are_compared(self):
        self.assertEqual(run("none")["findings"][0]["certainty"], "certain")

    @unittest.skipUnless(DOCTOR, "DDP_DOCTOR is not set")
    def test_a_wrong_word_is_a_note(self):
        report = run("typing-error")
        self.assertEqual(report["verdict"], "sick")
        self.assertTrue(any("placement() of a LayerNorm: no wrapper and no optimizer" in note for note in report["runs"][0]["notes"]))
        self.assertTrue(any("'shrad' is not used; write \"replicate\" or \"shard\"" in note for note in report["runs"][0]["notes"]))


if __name__ == "__main__":
    unittest.main()
