# SPDX-License-Identifier: BSD-3-Clause
"""SIGKILL, at points spread over a run, of each rank, of ddp-doctor itself and of torchrun: the first failed rank is named, the records can be
read, and nothing is left.

environment: DDP_DOCTOR=bin/ddp-doctor; POINTS: how many (2); exit 77: this Python has no torch
"""
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from test_programs import DOCTOR, check_environment, environment, skip

POINTS = int(os.environ.get("POINTS", "2"))
STEPS = 80
DEADLINE = 240
GONE_WITHIN = 5
PROGRAM = """
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, {steps} + 1):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    print(f"step {{step}}", flush=True)
    time.sleep(0.01)
dist.destroy_process_group()
"""


def points():
    return [1 + i * (STEPS - 10) // max(POINTS - 1, 1) for i in range(POINTS)]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]


def torchrun_works():
    return subprocess.run([*TORCHRUN, "--no_python", "true"], capture_output=True).returncode == 0


class Job:
    """An examination under way, in a folder of its own."""

    def __init__(self, folder, launcher=None):
        self.folder = pathlib.Path(folder)
        program = self.folder / "train.py"
        program.write_text(PROGRAM.format(steps=STEPS + 1000))  # it is killed before it ends
        self.out = self.folder / "out"
        self.stdout, self.stderr = self.folder / "stdout", self.folder / "stderr"
        what = ["--", *launcher, str(program)] if launcher else ["--python", sys.executable, str(program)]
        command = [DOCTOR, "run", "--format", "json", "--out", str(self.out), *what]
        with open(self.stdout, "w") as stdout, open(self.stderr, "w") as stderr:
            self.process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment())

    def wait_for_step(self, step):
        until = time.monotonic() + DEADLINE
        while f"step {step}\n" not in self.stderr.read_text():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"step {step} was not reached: {self.stderr.read_text()[-2000:]}")
            time.sleep(0.005)

    def ranks(self):
        """rank -> pid"""
        notes = [json.loads(note.read_text()) for note in self.out.glob("*/process-*.json")]
        return {note["rank"]: note["pid"] for note in notes if note.get("rank") is not None}

    def processes(self):
        """Whatever inherited the run's folder and is not dead."""
        found = []
        setting = f"DDP_DOCTOR_RECORD={self.out}/".encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if setting in (process / "environ").read_bytes() and (process / "stat").read_text().rsplit(")")[-1].split()[0] != "Z":
                    found.append(int(process.name))
            except OSError:
                pass
        return found

    def report(self):
        return json.loads(self.stdout.read_text())

    def read_again(self):
        again = subprocess.run([DOCTOR, "report", str(self.out), "--format", "json"], capture_output=True, text=True, timeout=DEADLINE)
        return again.returncode, json.loads(again.stdout) if again.stdout else again.stderr


def flat(findings):
    for finding in findings:
        yield finding
        yield from flat(finding["consequences"])


class Killed(unittest.TestCase):
    def test_a_rank(self):
        for step in points():
            for rank in (0, 1):
                with self.subTest(step=step, rank=rank), tempfile.TemporaryDirectory(prefix="ddp-doctor-kill-") as folder:
                    job = Job(folder)
                    job.wait_for_step(step)
                    os.kill(job.ranks()[rank], signal.SIGKILL)
                    self.assertEqual(job.process.wait(DEADLINE), 1, job.stderr.read_text()[-2000:])
                    crashes = [finding for finding in flat(job.report()["findings"]) if finding["rule"] == "DDP504"]
                    self.assertEqual([finding["evidence"]["first_failed_rank"] for finding in crashes], [rank])
                    self.assertEqual(job.processes(), [])
                    self.assertEqual(job.read_again()[1]["findings"], job.report()["findings"])

    def test_the_tool_itself(self):
        launchers = [None, TORCHRUN] if torchrun_works() else [None]
        for step, launcher in itertools.product(points(), launchers):
            with self.subTest(step=step, launcher=launcher), tempfile.TemporaryDirectory(prefix="ddp-doctor-kill-") as folder:
                job = Job(folder, launcher)
                job.wait_for_step(step)
                job.process.kill()
                job.process.wait(DEADLINE)
                until = time.monotonic() + GONE_WITHIN
                while job.processes() and time.monotonic() < until:
                    time.sleep(0.02)
                self.assertEqual(job.processes(), [])
                code, report = job.read_again()
                self.assertEqual(code, 3, report)
                self.assertGreaterEqual(len(report["runs"][0]["steps_table"]), min(step, 20) - 1)

    def test_torchrun(self):
        if not torchrun_works():
            skip(f"the torchrun of {sys.executable} does not work")
        for step in points():
            with self.subTest(step=step), tempfile.TemporaryDirectory(prefix="ddp-doctor-kill-") as folder:
                job = Job(folder, TORCHRUN)
                job.wait_for_step(step)
                children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text().split()
                (torchrun,) = [int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(sys.executable.encode())]
                os.kill(torchrun, signal.SIGKILL)
                killed = time.monotonic()
                self.assertEqual(job.process.wait(DEADLINE), 1, job.stderr.read_text()[-2000:])
                self.assertLess(time.monotonic() - killed, GONE_WITHIN)
                self.assertEqual(job.processes(), [])
                self.assertIn("the command that started it was killed by signal 9", job.report()["findings"][0]["message"])
                self.assertEqual(job.read_again()[1]["findings"], job.report()["findings"])


if __name__ == "__main__":
    sys.exit(77 if check_environment() else unittest.main(verbosity=2))
