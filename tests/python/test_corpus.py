# SPDX-License-Identifier: BSD-3-Clause
"""Real bugs are found, named and placed, and the same programs done right raise no alarm: tests/corpus.

Each program says in its first lines what is to be found; see tests/corpus/README.md. Where a finding prescribes a strategy, the same
examination tries it (run --fix), and it must cure the program, proven by a second diagnosis.

usage: test_corpus.py [NAME ...] [unittest's options]     NAME as in tests/corpus, without .py, or a pattern
environment: DDP_DOCTOR=bin/ddp-doctor, WARM_PYTHON=tests/warm/python3; exit 77: this Python has no torch, or not the one that the programs need
"""
import collections
import fnmatch
import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

from test_programs import DOCTOR, WARM_PYTHON, Process, all_findings, check_environment, chosen_among, environment, run_tests, skip, unmet_need

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus"
# Seconds without progress after which ddp-doctor ends a hang of two ranks (more ranks start more slowly), and a program
# that must not hang; and seconds after which the test ends ddp-doctor, which may try several strategies.
TIMEOUT, PATIENCE, DEADLINE = 15, 60, 400

Expected = collections.namedtuple("Expected", "rule ranks steps parameters line")
Label = collections.namedtuple("Label", "expected also never ranks inconclusive command python")
Outcome = collections.namedtuple("Outcome", "code stdout stderr command withdrawn")


def label_of(text):
    """What the program's head says; expected: for each set of options (mostly none but the usual) the findings."""
    lines = enumerate(text.splitlines(), 1)
    marks = {mark: number for number, line in lines for mark in re.findall(r"# <- (\w+)$", line)}
    expected = collections.defaultdict(list)
    for options, rule, rest in re.findall(r"^# expect *(.*?): (DDP\d{3}) *(.*)$", text, re.M):
        fields = {"ranks": [], "step": [], "parameters": []}
        field = None
        for word in rest.split():
            if word in fields:
                field = fields[word]
            else:
                field.append(word)
        steps = [int(step) for step in fields["step"][0].split("..")] if fields["step"] else None
        expected[tuple(options.split())].append(Expected(
            rule, [int(rank) for rank in fields["ranks"]], steps and (steps[0], steps[-1]), fields["parameters"],
            marks.get(rule, marks.get("here"))))
    also, never, ranks = (re.findall(rf"^# {key}: (.*)$", text, re.M) for key in ("also", "never", "ranks"))
    return Label(dict(expected), " ".join(also).split(), " ".join(never).split(), int(ranks[0]) if ranks else 2,
                 "\n# verdict: inconclusive\n" in text, "parity" if "\n# command: parity\n" in text else "run",
                 sys.executable if "\n# python: cold\n" in text else WARM_PYTHON)


def run_doctor(program, label, timeout, options, arguments):
    command = [DOCTOR, label.command, "--nproc-per-node", str(label.ranks), "--timeout", str(timeout), "--format", "json",
               "--python", label.python, *options, str(program), "--", *arguments]
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-corpus-") as name:
        folder = pathlib.Path(name)
        process = Process([*command[:2], "--out", str(folder / "runs"), *command[2:]], folder, "examined", environment())
        code = process.wait(time.monotonic() + DEADLINE)
        return Outcome(code, *process.text(), command, withdrawn_findings(folder / "runs" / "00-as-is"))


def withdrawn_findings(run):
    """What would have been announced while the program ran, and is not true in the end; empty if there is none."""
    tests = pathlib.Path(DOCTOR).with_name("unit_tests")
    if not (run / "run.json").exists() or not tests.exists():
        return ""
    replay = subprocess.run([tests, "--gtest_filter=Lasting.HoldsOnARecordedRun"], env=dict(os.environ, DDP_DOCTOR_RECORDED_RUN=str(run)),
                            capture_output=True, text=True)
    return replay.stdout if replay.returncode else ""


def describe(finding):
    where = finding["where"] or {"file": "nowhere", "line": 0}
    return (f"{finding['rule']} {finding['name']} ({finding['severity']}), ranks {finding['ranks']}, "
            f"step {finding['first_step']}, parameters {[p['name'] for p in finding['parameters']]}, "
            f"at {where['file']}:{where['line']}: {finding['message']}")


def mismatches(finding, expected, program):
    """What is wrong with a finding of the expected rule, in words."""
    names = [parameter["name"] for parameter in finding["parameters"]]
    if expected.ranks and finding["ranks"] != expected.ranks:
        yield f"ranks {finding['ranks']}, expected {expected.ranks}"
    if expected.steps and not expected.steps[0] <= (finding["first_step"] or 0) <= expected.steps[1]:
        yield f"first step {finding['first_step']}, expected {'..'.join(map(str, expected.steps))}"
    for pattern in expected.parameters:
        if not fnmatch.filter(names, pattern):
            yield f"no parameter {pattern} among {names}"
    for name in names if expected.parameters else []:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in expected.parameters):
            yield f"parameter {name} is not to blame"
    if expected.line:
        where = finding["where"]
        place = where and f"{os.path.basename(where['file'])}:{where['line']}"
        if place != f"{program.name}:{expected.line}":
            yield f"at {place}, expected {program.name}:{expected.line}"


def hung_in_torch(report, program):
    """Torch 1.13's Gloo threads can deadlock with the interpreter where a process group ends, on a busy machine: in
    destroy_process_group, or where main(...) returns and drops the last wrapper. Of the runs of strategies the report does not say
    where they hung."""
    if importlib.metadata.version("torch") >= "2":
        return False
    lines = [""] + program.read_text().splitlines()
    places = [finding["where"]["line"] for finding in report["findings"] if finding["rule"] == "DDP501" and finding["where"]]
    first = report["runs"][0]
    after_the_last_step = first["outcome"] == f"stopped in step {first['steps'] + 1}"
    return after_the_last_step or any(re.search(r"destroy_process_group|^\s*main\(.*\)$", lines[line]) for line in places) or any(
        run["outcome"].startswith("hung") for run in report["runs"][1:])


class Corpus(unittest.TestCase):
    maxDiff = None

    def examine(self, program, label, timeout, options, arguments):
        reason = unmet_need(program)
        if reason:
            skip(reason)
        for attempt in (1, 2):
            outcome = run_doctor(program, label, timeout, options, arguments)
            self.assertIsNotNone(outcome.code, self.explain("killed at its deadline", outcome))
            self.assertTrue(outcome.stdout, self.explain("no report", outcome))
            report = json.loads(outcome.stdout)
            self.assertEqual(outcome.withdrawn, "", self.explain("announced while it ran, and withdrawn", outcome))
            announced = set(re.findall(r"^ddp-doctor: (DDP\d{3}) .* certain; ", outcome.stderr, re.M))
            self.assertLessEqual(announced, {finding["rule"] for finding in all_findings(report["findings"])},
                                 self.explain("announced while it ran, and not in the report", outcome))
            if attempt == 2 or not hung_in_torch(report, program):
                return outcome, report
            print(f"{program.name} hung, perhaps in torch's destroy_process_group: tried once more", file=sys.stderr)

    def explain(self, what, outcome, findings=()):
        repeat = " ".join(map(shlex.quote, outcome.command))
        stderr = f"stderr\n{outcome.stderr[-3000:]}"
        return "\n--- ".join([what, *map(describe, findings), stderr, f"repeat with: {repeat}"])

    def finds(self, program, label, options):
        fixes = ["--fix", "--repeats", "0", "--in-place"] if label.command == "run" else []
        outcome, report = self.examine(program, label, TIMEOUT * label.ranks // 2, [*fixes, *options], ["bug"])
        findings = report["findings"]
        self.assertNotIn("the probe failed", json.dumps(report["runs"]), self.explain("the probe failed", outcome))
        wrong = []
        left = list(findings)
        for expected in label.expected[options]:
            finding = next((finding for finding in left if finding["rule"] == expected.rule), None)
            if finding is None:
                wrong.append(f"{expected.rule} was not found")
                continue
            left.remove(finding)
            wrong += [f"{expected.rule}: {mismatch}" for mismatch in mismatches(finding, expected, program)]
        wrong += [f"{finding['rule']} is not expected" for finding in left if finding["rule"] not in label.also]
        self.assertEqual(wrong, [], self.explain("not what is to be found", outcome, findings))
        harm = [finding for finding in findings if finding["severity"] != "advice"]
        self.assertEqual(outcome.code, 1 if harm else 0, self.explain("exit code", outcome, findings))
        self.is_cured(report, harm, outcome)

    def is_cured(self, report, harm, outcome):
        with_cure = [finding for finding in report["findings"] if finding["prescription"]["strategy"]]
        proofs = "; ".join(f"{finding['rule']}: {(finding['proof'] or {}).get('text', 'no proof')}" for finding in with_cure)
        for finding in with_cure:
            self.assertTrue(finding["proof"] and finding["proof"]["cured"], self.explain(f"not cured: {proofs}", outcome))
            self.assertTrue(report["runs"][finding["proof"]["run"]]["changes"], self.explain("what was changed is not reported", outcome))
        if harm and all(finding in with_cure for finding in harm):
            self.assertIn("healthy", [run["verdict"] for run in report["runs"][1:]], self.explain(proofs, outcome))

    def is_quiet(self, program, label, arguments):
        outcome, report = self.examine(program, label, PATIENCE, [], arguments)
        alarms = [describe(finding) for finding in all_findings(report["findings"])
                  if finding["severity"] != "advice" or finding["rule"] in label.never]
        self.assertEqual(alarms, [], self.explain("false alarm", outcome))
        self.assertNotIn("the probe failed", json.dumps(report["runs"]), self.explain("the probe failed", outcome))
        why = json.dumps([report["verdict"], report.get("parity"), report["runs"][0].get("notes")])[:2000]
        self.assertEqual(outcome.code, 3 if label.inconclusive else 0, self.explain(f"exit code: {why}", outcome))


def add_tests(program):
    text = program.read_text()
    label = label_of(text)
    rules = {expected.rule for findings in label.expected.values() for expected in findings}
    of_a_rule = re.match(r"ddp\d{3}", program.stem)
    if of_a_rule and rules != {of_a_rule.group().upper()}:
        sys.exit(f"{program.name}: its head expects {', '.join(sorted(rules)) or 'nothing'}")

    def add(name, check, *arguments):
        def test(self):
            check(self, program, label, *arguments)

        test.__doc__ = text.split('"""')[1].splitlines()[0]
        setattr(Corpus, f"test_{program.stem}_{name}", test)

    for options in label.expected:
        add("_".join(["bug", *options]).replace("-", ""), Corpus.finds, options)
    if label.expected:
        add("fixed", Corpus.is_quiet, ["fixed"])
    else:
        add("is_quiet", Corpus.is_quiet, [])


def main():
    if check_environment():
        return 77
    chosen, options = chosen_among(sorted(CORPUS.glob("*.py")), sys.argv[1:])
    for program in chosen:
        add_tests(program)
    return run_tests(options)


if __name__ == "__main__":
    sys.exit(main())
