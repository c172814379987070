#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""DDP-BugBench: what finds the bugs of tests/corpus? Each program is run with its bug and without it, under every detector.

usage: bugbench.py [--doctor BUILD/bin/ddp-doctor] [--python PY] [--detectors NAME,...] [--other NAME=COMMAND]... [--only GLOB] [--json FILE]

    plain          nothing: PyTorch's own errors
    info, detail   TORCH_DISTRIBUTED_DEBUG=INFO, DETAIL
    gradient-norm  fairseq's check in every step: the norm of all gradients is gathered, and must agree to 1e-6
    weight-hash    Megatron-LM's check_param_hashes_across_dp_replicas after every step: SHA-1 of each weight, gathered and compared
    ddp-doctor     `ddp-doctor run` with its defaults (of programs for it, `parity`)

--other adds a detector: COMMAND --nproc-per-node N PROGRAM ARGUMENT ends with 1 if it found a bug, with 0 if not, otherwise it could not tell. What it
prints is searched for the names of the parameters that are to blame.

Of the programs with a bug: caught (an error, or exit code 1 of a detector), hung (no end within the deadline: nobody is told anything), silent. named: the
output has the name of a parameter that is to blame, of those programs where there is one. cause, place: a report in JSON has the expected rule as a root
cause, with the ranks, the first step and the parameters of the program's label. noise: errors and warnings in it beside those. alarms: caught or hung
without a bug. seconds: median of a run.

Ranks are forked from a Python that has loaded torch (tests/python/warm.py), for every detector but those of --other, so seconds are without that. What
hangs there is run again with a Python of its own, and that run counts: healthy programs that destroy their process group may hang when they are forked
(torch 2.6: ~ProcessGroupGloo waits with the GIL for a thread that waits for the GIL).
Prints a line for each run to stderr, and the table. --json keeps the rows, and continues what is there. Rows of several files, such as those of several
torches: bugbench.py --table FILE...
"""
import argparse
import array
import collections
import fnmatch
import functools
import hashlib
import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests/corpus"
sys.path.insert(0, str(CORPUS.parent / "python"))
import test_corpus  # noqa: E402
from warm_python import warm_python  # noqa: E402

DEADLINE = 40  # seconds; programs that hang give their process group 600
TIMEOUT = 15  # of ddp-doctor, for ranks that hang
COMMAND_DEADLINE = 200  # of a detector that runs the program itself, more than once
DETECTORS = ("plain", "info", "detail", "gradient-norm", "weight-hash", "ddp-doctor")
CHECKED = ("gradient-norm", "weight-hash")
ADVICE = {"DDP113", "DDP204", "DDP207", "DDP208", "DDP405"}  # of programs that are right, and slower than they need be: not run

Run = collections.namedtuple("Run", "outcome text seconds report", defaults=(None,))


# ---- in a rank: the checks that frameworks have


def norms_agree(torch, dist, parameters):
    """fairseq/trainer.py, _check_grad_norms."""
    gradients = [p.grad.detach() for p in parameters if p.grad is not None]
    norm = torch.stack([g.float().norm() for g in gradients]).norm() if gradients else torch.zeros(())
    everyones = [torch.zeros_like(norm) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, norm)
    everyones = torch.stack(everyones)
    furthest = (everyones - everyones[0]).abs().max()
    return bool((torch.isfinite(everyones).all() and furthest / (everyones[0] + 1e-6) < 1e-6) or not torch.isfinite(everyones).any())


def hashes_agree(torch, dist, parameters):
    """megatron/core/utils.py, check_param_hashes_across_dp_replicas."""
    digests = [hashlib.sha1(p.data.cpu().float().contiguous().numpy()).digest() for p in parameters]
    hashes = torch.stack([torch.frombuffer(array.array("B", digest), dtype=torch.uint8) for digest in digests])
    everyones = [torch.zeros_like(hashes) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, hashes)
    return all(torch.equal(hashes, other) for other in everyones)


def run_checked(check, program, arguments):
    """The program, with the check around every optimizer's step."""
    import torch
    import torch.distributed as dist

    patched = set()
    dist.set_debug_level_from_env()  # torch read it when it was loaded

    def checked(step):
        @functools.wraps(step)
        def step_(self, *args, **kwargs):
            parameters = [p for group in self.param_groups for p in group["params"] if type(p.data) is torch.Tensor]
            if check == "gradient-norm" and not norms_agree(torch, dist, parameters):
                raise FloatingPointError("Fatal error: gradients are inconsistent between workers.")
            result = step(self, *args, **kwargs)
            if check == "weight-hash" and not hashes_agree(torch, dist, parameters):
                raise AssertionError("Parameter hashes not matching")
            return result

        return step_

    made = torch.optim.Optimizer.__init__

    def __init__(self, *args, **kwargs):
        made(self, *args, **kwargs)
        if type(self) not in patched:
            patched.add(type(self))
            type(self).step = checked(type(self).step)

    if check in CHECKED:
        torch.optim.Optimizer.__init__ = __init__
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(program)
    runpy.run_path(program, run_name="__main__")


# ---- runs


def ended(processes, text, began, deadline=DEADLINE):
    """Waits for all of them; one that failed ends the others, as torchrun does."""
    seconds = None
    while any(process.poll() is None for process in processes) and time.monotonic() - began < deadline:
        if any(process.poll() not in (None, 0) for process in processes):
            seconds = time.monotonic() - began
            time.sleep(2)  # the others' errors
            break
        time.sleep(0.02)
    seconds = seconds or time.monotonic() - began
    codes = [process.poll() for process in processes]
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    outcome = "raised" if any(code not in (None, 0) for code in codes) else "hung" if None in codes else "silent"
    text.seek(0)
    return Run(outcome, text.read(), seconds)


def run_ranks(python, detector, program, label, arguments):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    words = [str(program)] if detector == "plain" else [__file__, "--check", detector, str(program)]
    more = {"TORCH_DISTRIBUTED_DEBUG": detector.upper()} if detector in ("info", "detail") else {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", errors="replace") as text:
        began = time.monotonic()
        ranks = [
            subprocess.Popen(
                [python, *words, *arguments], cwd=folder, stdout=text, stderr=subprocess.STDOUT, start_new_session=True,
                env=test_corpus.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(label.ranks), LOCAL_WORLD_SIZE=str(label.ranks),
                                            MASTER_ADDR="127.0.0.1", MASTER_PORT=port, USE_LIBUV="0", **more))
            for rank in range(label.ranks)
        ]
        return ended(ranks, text, began)


def run_command(command, program, label, arguments):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", errors="replace") as text:
        report = pathlib.Path(folder) / "report.json"
        began = time.monotonic()
        process = subprocess.Popen([word.replace("{report}", str(report)) for word in command] + ["--nproc-per-node", str(label.ranks), str(program), *arguments],
                                   cwd=folder, stdout=text, stderr=subprocess.STDOUT, start_new_session=True, env=test_corpus.environment())
        run = ended([process], text, began, COMMAND_DEADLINE)
        read = json.loads(report.read_text()) if report.exists() else None
    outcome = {0: "silent", 1: "raised"}.get(process.returncode, "unknown" if run.outcome == "raised" else run.outcome)
    return run._replace(outcome=outcome, report=read)


def run_detector(options, detector, program, label, arguments, more):
    if detector in options.others:
        return run_command(options.others[detector], program, label, arguments)
    for python in (options.warm, options.python):
        if detector == "ddp-doctor":
            command = [options.doctor, label.command, "--python", python, "--timeout", str(TIMEOUT), "--report", "{report}", *more]
            run = run_command(command, program, label, ["--", *arguments])
        else:
            run = run_ranks(python, detector, program, label, arguments)
        if run.seconds < TIMEOUT:
            break
    return run


# ---- the table


def names_a_parameter(text, patterns):
    """Whether a word of the text is the name of a parameter that fits a pattern."""
    words = set(re.findall(r"[\w.]+", text))
    return any(fnmatch.fnmatch(word.strip("."), pattern) for word in words for pattern in patterns)


def judged(report, label, wanted, program):
    """Of a report on a program with a bug: whether each expected cause is there, and at the place of its label; and how many others."""
    left = list(report["findings"])
    cause = place = True
    for expected in wanted:
        finding = next((finding for finding in left if finding["rule"] == expected.rule), None)
        cause = cause and finding is not None
        place = place and finding is not None and not list(test_corpus.mismatches(finding, expected._replace(line=None), program))
        left = [other for other in left if other is not finding]
    left = [finding for finding in left if finding["severity"] != "advice" and finding["rule"] not in label.also]
    return {"cause": cause, "place": place, "noise": len(left)}


def examine(options, program, known):
    """Of each detector, the runs with the bug and without it that are not known yet, as rows."""
    label = test_corpus.label_of(program.read_text())
    more, wanted = next(iter(label.expected.items()), ((), []))
    if wanted and ADVICE.issuperset(expected.rule for expected in wanted):
        return
    patterns = [pattern for expected in wanted for pattern in expected.parameters]
    for detector in options.detectors:
        for arguments in (["bug"], ["fixed"]) if wanted else ([],):
            bug = arguments == ["bug"]
            if (program.stem, detector, bug) in known:
                continue
            run = run_detector(options, detector, program, label, arguments, more)
            row = {"program": program.stem, "detector": detector, "torch": options.torch, "bug": bug, "outcome": run.outcome,
                   "seconds": round(run.seconds, 2), "named": names_a_parameter(run.text, patterns) and run.outcome == "raised" if bug and patterns else None}
            if bug and run.report:
                row.update(judged(run.report, label, wanted, program))
            print(*row.values(), run.text if row["outcome"] == "unknown" else "", file=sys.stderr, flush=True)
            yield row


def table(rows):
    yield "| torch | detector | bugs | caught | hung | silent | named | cause | place | noise | without a bug | alarms | seconds |"
    yield "|---" * 13 + "|"
    for torch, detector in dict.fromkeys((row["torch"], row["detector"]) for row in rows):
        mine = [row for row in rows if (row["torch"], row["detector"]) == (torch, detector)]
        bugs, healthy = [row for row in mine if row["bug"]], [row for row in mine if not row["bug"]]
        count = lambda outcome: sum(row["outcome"] == outcome for row in bugs)
        total = lambda key: sum(row.get(key) or 0 for row in bugs) if any(key in row for row in bugs) else "-"
        cells = [torch, detector, len(bugs), count("raised"), count("hung"), count("silent") + count("unknown"),
                 f"{sum(bool(row['named']) for row in bugs)} of {sum(row['named'] is not None for row in bugs)}", total("cause"), total("place"), total("noise"),
                 len(healthy), sum(row["outcome"] in ("raised", "hung") for row in healthy), f"{statistics.median(row['seconds'] for row in mine):.1f}"]
        yield "| " + " | ".join(map(str, cells)) + " |"


def read_rows(file):
    return json.loads(file.read_text()) if file and file.exists() else []


def main():
    if sys.argv[1:2] == ["--check"]:
        return run_checked(sys.argv[2], sys.argv[3], sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor")
    parser.add_argument("--python", default=sys.executable, help="has torch [this one]")
    parser.add_argument("--detectors", help="[all]")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--only", default="*")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table([row for file in options.table for row in read_rows(file)])))
        return 0
    options.others = {name: shlex.split(command) for name, _, command in (other.partition("=") for other in options.other)}
    options.detectors = options.detectors.split(",") if options.detectors else [*DETECTORS, *options.others]
    unknown = set(options.detectors) - {*DETECTORS, *options.others}
    if unknown:
        parser.error(f"no detector {', '.join(sorted(unknown))}; there are: {', '.join((*DETECTORS, *options.others))}")
    if "ddp-doctor" in options.detectors and not options.doctor:
        parser.error("the detector ddp-doctor needs --doctor")
    options.doctor = options.doctor and os.path.abspath(options.doctor)
    options.python = shutil.which(options.python) and os.path.abspath(shutil.which(options.python))
    if not options.python:
        parser.error("--python: there is no such program")
    programs = [program for program in sorted(CORPUS.glob("*.py")) if fnmatch.fnmatch(program.stem, options.only)]
    if not programs:
        parser.error(f"no program matches {options.only}")
    needs = f"import sys; sys.path.insert(0, {str(CORPUS.parent / 'python')!r}); import pathlib, test_corpus; " \
            "print(*(test_corpus.unmet_need(pathlib.Path(name)) is None for name in sys.argv[1:])); import torch; print(torch.__version__)"
    answers = subprocess.run([options.python, "-c", needs, *programs], capture_output=True, text=True, check=True).stdout.split()
    options.torch = answers.pop().split("+")[0]
    omitted = [program.stem for program, fits in zip(programs, answers) if fits != "True"]
    rows = read_rows(options.json)
    with warm_python(options.python) as options.warm:
        for program in programs:
            if program.stem in omitted:
                continue
            known = {(row["program"], row["detector"], row["bug"]) for row in rows}
            rows += examine(options, program, known)
            if options.json:
                options.json.write_text(json.dumps(rows))
    print("\n".join(table(rows)))
    if omitted:
        print(f"\n{len(omitted)} programs need another torch: {', '.join(omitted)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
