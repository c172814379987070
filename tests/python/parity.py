# SPDX-License-Identifier: BSD-3-Clause
"""Runs one program twice, by ddp-doctor and by Python's DistributedDataParallel, and hands back what each saw."""
import atexit
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
DOCTOR = os.environ["DDP_DOCTOR"]
EXAMPLES = pathlib.Path(os.environ["EXAMPLES"])
WRAPPERS = {
    "ddp": {},
    "ddp-find-unused": {"find_unused_parameters": True},
    "ddp-static-graph": {"static_graph": True},
}
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", TORCH_DISTRIBUTED_DEBUG="INFO", MASTER_ADDR="127.0.0.1", USE_LIBUV="0")


def require_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: this Python has no torch")
        sys.exit(77)


def by_doctor(program, strategy, steps, world, folder):
    out = folder / "run"
    command = [DOCTOR, "run", str(EXAMPLES / program), "--strategies", strategy, "--steps", str(steps), "--optimizer", "sgd",
               "--nproc-per-node", str(world), "--out", str(out), "--format", "json", "--fail-on", "never"]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, timeout=120)
    report = json.loads(done.stdout)
    digests = []
    for rank in range(world):
        record = sqlite3.connect(out / f"00-{strategy}" / f"rank-{rank:05}.sqlite")
        rows = record.execute(
            "select o.step, o.stage, t.name, hex(o.digest) from observation o join tensor t on t.id = o.tensor"
            " where o.stage in (1, 2) and t.kind = 'parameter' and t.trainable and o.step > 0")
        digests.append({f"{step}/{stage}/{name}": value.lower() for step, stage, name, value in rows})
    return report, digests


def by_python(program, strategy, steps, world, folder):
    options = {"steps": steps, "lr": 0.01, "seed": 0, "wrapper": WRAPPERS[strategy]}
    return PYTHON_RANKS.run([EXAMPLES / program] * world, options, folder)


class Ranks:
    """Those that `command` forks, job by job: python_ddp.py, or wrapper_rank in C++."""

    def __init__(self, *command):
        self.command, self.process = command, None

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def run(self, programs, options, folder):
        """What each of them wrote."""
        if self.process is None:
            self.complaints = tempfile.TemporaryFile()
            self.process = subprocess.Popen(self.command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints,
                                            text=True, start_new_session=True)
            atexit.register(self.kill)
        deadline = threading.Timer(120, self.kill)
        deadline.start()
        print(json.dumps({"programs": [str(program) for program in programs], "options": options, "folder": str(folder)}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        deadline.cancel()
        if answer != "0\n":
            self.complaints.seek(0)
            raise AssertionError(f"{self.command[0]}: a rank failed:\n{self.complaints.read()[-2000:].decode()}")
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(programs))]


PYTHON_RANKS = Ranks(sys.executable, str(HERE / "python_ddp.py"))


def both(program, strategy, steps=5, world=2):
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-parity-") as name:
        folder = pathlib.Path(name)
        report, digests = by_doctor(program, strategy, steps, world, folder)
        return report, digests, by_python(program, strategy, steps, world, folder)
