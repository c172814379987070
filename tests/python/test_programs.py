# SPDX-License-Identifier: BSD-3-Clause
"""Examining a correct training program changes nothing and finds nothing: tests/programs, each run as it is and under ddp-doctor.

Every rank prints a digest of its final parameters, buffers and losses; the runs must agree in it to the last bit. So must a third run of
one program for each way in which ranks start, under ddp-doctor with the probe switched off (DDP_DOCTOR=0).

usage: test_programs.py [NAME ...] [unittest's options]     NAME as in tests/programs, without .py, or a pattern
environment: DDP_DOCTOR=bin/ddp-doctor, WARM_PYTHON=tests/warm/python3; exit 77: this Python has no torch
"""
import collections
import fnmatch
import importlib.util
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"
DOCTOR = os.environ.get("DDP_DOCTOR")
# This Python, or what stands for it and has loaded torch (warm.py).
WARM_PYTHON = os.environ.get("WARM_PYTHON", sys.executable)
RANKS = 2
DEADLINE = 120
# What these programs need the command for: they start their ranks themselves.
STARTS_ITS_RANKS = {"mp_spawn"}
SWITCHED_OFF_TOO = {"plain_loop", "mp_spawn"}
# Not anchored to lines: ranks that share a pipe may interleave them.
DIGEST = re.compile(r"digest rank (\d+) ([0-9a-f]{64})")
# Torch's Gloo threads can hang or abort a process that has finished (they want the interpreter's lock while it ends).
# After its digest a rank has this long to end; how it ends is then not this test's business.
PATIENCE_AFTER_DIGEST = 10
ABORTED_AFTERWARDS = "terminate called without an active exception"

Outcome = collections.namedtuple("Outcome", "digests code stdout stderr")


def unmet_need(program):
    """Why this Python cannot run the program, by its line `# needs: torch>=2.1, transformers`; None if it can."""
    needs = re.search(r"^# needs: (.*)$", program.read_text(), re.M)
    for need in needs.group(1).split(",") if needs else []:
        name, _, least = need.strip().partition(">=")
        if importlib.util.find_spec(name) is None:
            return f"needs {name}"
        if least:
            version = importlib.import_module(name).__version__
            if [int(part) for part in re.findall(r"\d+", version)[:2]] < [int(part) for part in least.split(".")]:
                return f"needs {need.strip()}, this is {version}"
    return None


def skip(reason):
    """Skips a test, but not in CI on pip's newest torch (a virtual environment), which has all that the tests need. Debian's torch 1.13
    lacks some of it: its torchrun does not work on Python 3.11."""
    if os.environ.get("CI") == "true" and sys.prefix != sys.base_prefix:
        raise AssertionError(f"CI must have what this test needs: {reason}")
    raise unittest.SkipTest(reason)


def environment(**more):
    """The user's, without what a surrounding ddp-doctor or torchrun would have put there."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("DDP_DOCTOR", "TORCHELASTIC_")) and name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return dict(clean, OMP_NUM_THREADS="1", **more)


def free_port():
    """Below the ports that the kernel gives to clients, so that none of them takes it meanwhile."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = max(1024, low - 8192)
    for attempt in range(1000):
        port = first + (os.getpid() * 37 + time.monotonic_ns() // 1000 + attempt) % max(1, low - first)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no free port on 127.0.0.1")


def digests_in(text):
    return dict(DIGEST.findall(text))


class Process:
    """A process in a group of its own, whose output goes to files; nothing of it is left afterwards."""

    def __init__(self, command, folder, name, env):
        self.command = command
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            start_new_session=True)

    def text(self):
        return self.out.read_text(errors="replace"), self.err.read_text(errors="replace")

    def wait(self, deadline, enough=lambda text: False):
        """Its exit code; None if it had to be killed, at the deadline or some time after it had printed enough."""
        satisfied = None
        try:
            while self.process.poll() is None and time.monotonic() < deadline:
                if satisfied is None and enough(self.text()[0]):
                    satisfied = time.monotonic()
                if satisfied is not None and time.monotonic() - satisfied > PATIENCE_AFTER_DIGEST:
                    break
                time.sleep(0.05)
            return self.process.poll()
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()


def python_of(program):
    return sys.executable if program.stem in STARTS_ITS_RANKS else WARM_PYTHON


def run_plainly(program, folder):
    """As torchrun would, ranks in the environment; or as it is, where the program starts them itself."""
    if program.stem in STARTS_ITS_RANKS:
        environments = [environment()]
    else:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
        environments = [environment(**meeting, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(RANKS)]
    deadline = time.monotonic() + DEADLINE
    processes = [Process([python_of(program), str(program)], folder, f"plain-{i}", env) for i, env in enumerate(environments)]
    for process in processes:
        process.wait(deadline, enough=lambda text: len(digests_in(text)) * len(processes) == RANKS)
    texts = [process.text() for process in processes]
    stdout, stderr = ("\n".join(parts) for parts in zip(*texts))
    return Outcome(digests_in(stdout), None, stdout, stderr)


def run_examined(program, folder, **more):
    command = [DOCTOR, "run", "--nproc-per-node", str(RANKS), "--every", "3", "--warmup", "4", "--format", "json"]
    if program.stem in STARTS_ITS_RANKS:
        del command[2:4]
        command += ["--", python_of(program), str(program)]
    else:
        command += ["--python", python_of(program), str(program)]
    process = Process(command, folder, "examined", environment(**more))
    code = process.wait(time.monotonic() + DEADLINE)
    stdout, stderr = process.text()
    return Outcome(digests_in(stderr), code, stdout, stderr)


def all_findings(findings):
    for finding in findings:
        yield finding
        yield from all_findings(finding["consequences"])


class Programs(unittest.TestCase):
    maxDiff = None

    def in_folder(self, run, program, **more):
        """Runs it in an empty folder; and nothing is left there but what the program wrote, which is nothing."""
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-programs-") as name:
            folder = pathlib.Path(name)
            outcome = run(program, folder, **more)
            left = [path.name for path in folder.iterdir() if path.suffix not in (".out", ".err")]
            self.assertEqual(left, [], f"left in the working folder by {run.__name__}")
            return outcome

    def explain(self, what, outcome):
        code = "killed at its deadline" if outcome.code is None else f"exit code {outcome.code}"
        repeat = " ".join(map(shlex.quote, [f"DDP_DOCTOR={DOCTOR}", sys.executable, __file__, self.program]))
        return "\n--- ".join([what, code, f"stdout\n{outcome.stdout[-4000:]}", f"stderr\n{outcome.stderr[-4000:]}",
                              f"repeat with: {repeat}"])

    def examine(self, program):
        self.program = program.stem
        reason = unmet_need(program)
        if reason:
            skip(reason)
        plain = self.in_folder(run_plainly, program)
        self.assertEqual(sorted(plain.digests), [str(rank) for rank in range(RANKS)], self.explain("the plain run failed", plain))

        examined = self.in_folder(run_examined, program)
        self.assertEqual(examined.digests, plain.digests, self.explain("examining it changed it", examined))
        self.assertTrue(examined.stdout, self.explain("no report", examined))
        report = json.loads(examined.stdout)
        alarms = [f"{finding['rule']} {finding['name']}: {finding['severity']}: {finding['message']}"
                  for finding in all_findings(report["findings"]) if finding["severity"] in ("error", "warning")]
        self.assertEqual(alarms, [], self.explain("false alarm", examined._replace(stdout="")))
        self.assertNotRegex(examined.stderr, r"(?m)^ddp-doctor: DDP\d{3} ", self.explain("false alarm while it ran", examined))
        self.assertEqual(examined.code, 0, self.explain("a correct program is not healthy", examined))
        run = report["runs"][0]
        self.assertNotIn("the probe failed", json.dumps(run), self.explain("the probe failed", examined))
        self.assertEqual(report["world_size"], RANKS, self.explain("ranks were not seen", examined))
        self.assertGreater(run["steps"], 0, self.explain("no optimizer step was seen", examined))
        observed = [step for step in run["steps_table"] if None not in step["gradient_norm"]]
        self.assertTrue(observed, self.explain("no step has the gradients of every rank", examined))

        if program.stem not in SWITCHED_OFF_TOO:
            return
        off = self.in_folder(run_examined, program, DDP_DOCTOR="0")
        self.assertEqual(off.digests, plain.digests, self.explain("starting it under ddp-doctor changed it", off))
        if ABORTED_AFTERWARDS not in off.stderr:
            self.assertEqual(off.code, 3, self.explain("with the probe off there is nothing to judge", off))


def add_test(program):
    def test(self):
        self.examine(program)

    test.__doc__ = program.read_text().split('"""')[1].splitlines()[0]
    setattr(Programs, f"test_{program.stem}", test)


def check_environment():
    """Exit code 77 where this Python has no torch; ends the program where DDP_DOCTOR is none."""
    if importlib.util.find_spec("torch") is None:
        print("skipped: this Python has no torch")
        return 77
    if not DOCTOR or not os.access(DOCTOR, os.X_OK):
        sys.exit(f"DDP_DOCTOR={DOCTOR or ''} is not a program; set it to the path of ddp-doctor")
    return 0


def run_tests(options):
    """An exit code: 77 where every test was skipped."""
    result = unittest.main(argv=[sys.argv[0], "-v", *options], exit=False).result
    if not result.wasSuccessful():
        return 1
    return 77 if len(result.skipped) == result.testsRun else 0


def chosen_among(programs, arguments):
    """(programs that the arguments name, by patterns; all without one, options of unittest)"""
    patterns = [argument for argument in arguments if not argument.startswith("-")]
    for pattern in patterns:
        if not any(fnmatch.fnmatch(program.stem, pattern) for program in programs):
            sys.exit(f"no program {pattern} in {programs[0].parent}")
    chosen = [program for program in programs if any(fnmatch.fnmatch(program.stem, pattern) for pattern in patterns or ["*"])]
    return chosen, [argument for argument in arguments if argument.startswith("-")]


def main():
    if check_environment():
        return 77
    chosen, options = chosen_among(sorted(PROGRAMS.glob("*.py")), sys.argv[1:])
    for program in chosen:
        add_test(program)
    return run_tests(options)


if __name__ == "__main__":
    sys.exit(main())
