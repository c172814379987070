# SPDX-License-Identifier: BSD-3-Clause
"""run --fix on the bugs of tests/corpus: where a finding has a strategy, it is cured, proven by a second diagnosis.

usage: test_fix.py [NAME ...] [unittest's options]     NAME as in tests/corpus, without .py
environment: DDP_DOCTOR=bin/ddp-doctor; exit 77: this Python has no torch
"""
import json
import pathlib
import sys
import tempfile
import time
import unittest

from test_corpus import CORPUS, label_of
from test_programs import DOCTOR, Process, check_environment, environment, unmet_need

TIMEOUT, DEADLINE = 15, 400


class Fix(unittest.TestCase):
    def check(self, program, label):
        reason = unmet_need(program)
        if reason:
            self.skipTest(reason)
        command = [DOCTOR, "run", "--fix", "--repeats", "0", "--nproc-per-node", str(label.ranks), "--timeout",
                   str(TIMEOUT * label.ranks // 2), "--format", "json", "--python", sys.executable, str(program), "--", "bug"]
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-fix-") as name:
            process = Process(command, pathlib.Path(name), "fixed", environment())
            code = process.wait(time.monotonic() + DEADLINE)
            stdout, stderr = process.text()
        self.assertTrue(stdout, f"no report; exit code {code}; {stderr[-2000:]}")
        report = json.loads(stdout)
        harmful = [finding for finding in report["findings"] if finding["severity"] != "advice"]
        self.assertEqual(code, 1 if harmful else 0)
        with_cure = [finding for finding in report["findings"] if finding["prescription"]["strategy"]]
        if not with_cure:
            self.skipTest(f"no strategy for {', '.join(finding['rule'] for finding in report['findings'])}")
        said = {finding["rule"]: finding["proof"] and finding["proof"]["text"] for finding in with_cure}
        for finding in with_cure:
            self.assertTrue(finding["proof"] and finding["proof"]["cured"], said)
            self.assertTrue(report["runs"][finding["proof"]["run"]]["changes"], "what was changed is not said")
        if len(harmful) == len([finding for finding in with_cure if finding["severity"] != "advice"]):
            self.assertIn("healthy", [run["verdict"] for run in report["runs"][1:]], said)


def main():
    if check_environment():
        return 77
    programs = {program.stem: program for program in sorted(CORPUS.glob("*.py"))}
    options = [argument for argument in sys.argv[1:] if argument not in programs]
    wanted = [argument for argument in sys.argv[1:] if argument in programs] or programs
    for name in wanted:
        label = label_of(programs[name].read_text())
        if label.expected:
            setattr(Fix, f"test_{name}", lambda self, program=programs[name], label=label: self.check(program, label))
    done = unittest.main(argv=[sys.argv[0], "-v", *options], exit=False)
    return 0 if done.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
