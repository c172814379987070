# SPDX-License-Identifier: BSD-3-Clause
"""Every correct program here, examined again and again: none may raise an alarm, also on a busy machine.

All of tests/programs, the correct ones of tests/corpus, and the fixed.py of each folder in --cases DIR (beside a
case.json: {"nproc": 2, "torch": ["2."], "fixed_ok": []}). Prints a line per program; exits 1 after any alarm.

usage: quiet_runs.py [--runs 5] [--load] [--cases DIR] [NAME ...]     --load keeps one core busy meanwhile
environment: DDP_DOCTOR=bin/ddp-doctor; exit 77: this Python has no torch
"""
import argparse
import collections
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from test_corpus import CORPUS, PATIENCE, describe, label_of
from test_programs import DOCTOR, PROGRAMS, STARTS_ITS_RANKS, Process, all_findings, check_environment, environment, unmet_need

DEADLINE = 300
Innocent = collections.namedtuple("Innocent", "name program ranks arguments tolerated")


def innocents(cases):
    for program in sorted(PROGRAMS.glob("*.py")):
        yield Innocent(program.stem, program, 2, [], [])
    for program in sorted(CORPUS.glob("*.py")):
        label = label_of(program.read_text())
        yield Innocent(program.stem, program, label.ranks, ["fixed"] if label.expected else [], [])
    for case in sorted(cases.glob("*/case.json")) if cases else []:
        about = json.loads(case.read_text())
        program = case.with_name("fixed.py")
        torch = importlib.import_module("torch").__version__
        if program.exists() and any(torch[:2] == seen[:2] for seen in about.get("torch", ["1.", "2."])):
            yield Innocent(case.parent.name, program, about.get("nproc", 2), [], about.get("fixed_ok", []))


def alarms(innocent):
    """What one examination says against the program, as text; empty: nothing."""
    command = [DOCTOR, "run", "--format", "json", "--timeout", str(PATIENCE)]
    if innocent.program.stem in STARTS_ITS_RANKS:
        command += ["--", sys.executable, str(innocent.program)]
    else:
        command += ["--nproc-per-node", str(innocent.ranks), "--python", sys.executable, str(innocent.program)]
        command += ["--", *innocent.arguments] if innocent.arguments else []
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-quiet-") as folder:
        process = Process(command, pathlib.Path(folder), "examined", environment())
        code = process.wait(time.monotonic() + DEADLINE)
        stdout, stderr = process.text()
    findings = json.loads(stdout)["findings"] if stdout else []
    loud = [describe(finding) for finding in all_findings(findings)
            if finding["severity"] != "advice" and finding["rule"] not in innocent.tolerated]
    if code != 0 and not loud and not innocent.tolerated:
        loud.append(f"exit code {code}: {stderr[-2000:]}")
    return "\n".join(loud)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--cases", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if check_environment():
        return 77
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.load else None
    loud = 0
    try:
        for innocent in innocents(options.cases):
            reason = unmet_need(innocent.program)
            if reason or options.names and innocent.name not in options.names:
                continue
            said = [alarms(innocent) for _ in range(options.runs)]
            loud += any(said)
            print("\n".join([f"{innocent.name:45} quiet {said.count('')} of {len(said)}", *filter(None, said)]), flush=True)
    finally:
        if busy:
            busy.kill()
    print(f"{loud} programs raised an alarm")
    return 1 if loud else 0


if __name__ == "__main__":
    sys.exit(main())
