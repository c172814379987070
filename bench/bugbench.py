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

Of the programs with a bug: raised (an error, or exit code 1 of a detector), hung (no end within the deadline), silent; named: the output has the name
of a parameter that is to blame, of those where there is one. Of the programs without one: alarms. Seconds: median of a run.
A hang is no detection: nobody is told anything. Prints a line for each run to stderr, and the table.
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

DEADLINE = 40  # seconds; programs that hang give their process group 600
DETECTORS = ("plain", "info", "detail", "gradient-norm", "weight-hash", "ddp-doctor")
CHECKED = ("gradient-norm", "weight-hash")
ADVICE = {"DDP113", "DDP204", "DDP207", "DDP208", "DDP405"}  # of programs that are right, and slower than they need be: not run

Run = collections.namedtuple("Run", "outcome text seconds")


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

    torch.optim.Optimizer.__init__ = __init__
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(program)
    runpy.run_path(program, run_name="__main__")


# ---- runs


def ended(processes, text, began):
    """Waits for all of them; one that failed ends the others, as torchrun does."""
    while any(process.poll() is None for process in processes) and time.monotonic() - began < DEADLINE:
        if any(process.poll() not in (None, 0) for process in processes):
            time.sleep(2)  # the others' errors
            break
        time.sleep(0.02)
    codes = [process.poll() for process in processes]
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    outcome = "raised" if any(code not in (None, 0) for code in codes) else "hung" if None in codes else "silent"
    text.seek(0)
    return Run(outcome, text.read(), time.monotonic() - began)


def run_ranks(options, detector, program, label, arguments):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    words = [__file__, "--check", detector, str(program)] if detector in CHECKED else [str(program)]
    more = {"TORCH_DISTRIBUTED_DEBUG": detector.upper()} if detector in ("info", "detail") else {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", errors="replace") as text:
        began = time.monotonic()
        ranks = [
            subprocess.Popen(
                [options.python, *words, *arguments], cwd=folder, stdout=text, stderr=subprocess.STDOUT, start_new_session=True,
                env=test_corpus.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(label.ranks), LOCAL_WORLD_SIZE=str(label.ranks),
                                            MASTER_ADDR="127.0.0.1", MASTER_PORT=port, USE_LIBUV="0", **more))
            for rank in range(label.ranks)
        ]
        return ended(ranks, text, began)


def run_command(command, program, label, arguments):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", errors="replace") as text:
        began = time.monotonic()
        process = subprocess.Popen([*command, "--nproc-per-node", str(label.ranks), str(program), *arguments], cwd=folder, stdout=text,
                                   stderr=subprocess.STDOUT, start_new_session=True, env=test_corpus.environment())
        run = ended([process], text, began)
    return run._replace(outcome={0: "silent", 1: "raised"}.get(process.returncode, "unknown" if run.outcome == "raised" else run.outcome))


def run_detector(options, detector, program, label, arguments):
    if detector == "ddp-doctor":
        command = [options.doctor, label.command, "--python", options.python, "--timeout", "15"]
        return run_command(command, program, label, ["--", *arguments])
    if detector in options.others:
        return run_command(options.others[detector], program, label, arguments)
    return run_ranks(options, detector, program, label, arguments)


# ---- the table


def names_a_parameter(text, patterns):
    """Whether a word of the text is the name of a parameter that fits a pattern; None if no parameter is to blame."""
    if not patterns:
        return None
    words = set(re.findall(r"[\w.]+", text))
    return any(fnmatch.fnmatch(word.strip("."), pattern) for word in words for pattern in patterns)


def examine(options, program):
    """Of each detector, the runs with the bug and without it: {"program", "detector", "bug", "outcome", "named", "seconds"}."""
    label = test_corpus.label_of(program.read_text())
    wanted = [expected for findings in label.expected.values() for expected in findings]
    if wanted and ADVICE.issuperset(expected.rule for expected in wanted):
        return
    patterns = [pattern for expected in wanted for pattern in expected.parameters]
    for detector in options.detectors:
        for arguments in (["bug"], ["fixed"]) if wanted else ([],):
            run = run_detector(options, detector, program, label, arguments)
            bug = arguments == ["bug"]
            row = {"program": program.stem, "detector": detector, "bug": bug, "outcome": run.outcome, "seconds": round(run.seconds, 1),
                   "named": names_a_parameter(run.text, patterns) if bug and run.outcome == "raised" else None}
            print(*row.values(), file=sys.stderr, flush=True)
            yield row


def table(rows, detectors):
    yield "| detector | bugs | raised | hung | silent | named | programs without a bug | alarms | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    blamed = {row["program"] for row in rows if row["named"] is not None}
    for detector in detectors:
        mine = [row for row in rows if row["detector"] == detector]
        bugs, healthy = [row for row in mine if row["bug"]], [row for row in mine if not row["bug"]]
        count = lambda outcome: sum(row["outcome"] == outcome for row in bugs)
        cells = [detector, len(bugs), count("raised"), count("hung"), count("silent") + count("unknown"),
                 f"{sum(bool(row['named']) for row in bugs)} of {sum(row['program'] in blamed for row in bugs)}",
                 len(healthy), sum(row["outcome"] in ("raised", "hung") for row in healthy), f"{statistics.median(row['seconds'] for row in mine):.1f}"]
        yield "| " + " | ".join(map(str, cells)) + " |"


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
    options = parser.parse_args()
    options.others = {name: shlex.split(command) for name, _, command in (other.partition("=") for other in options.other)}
    options.detectors = options.detectors.split(",") if options.detectors else [*DETECTORS, *options.others]
    unknown = set(options.detectors) - {*DETECTORS, *options.others}
    if unknown:
        parser.error(f"no detector {', '.join(sorted(unknown))}; there are: {', '.join((*DETECTORS, *options.others))}")
    if "ddp-doctor" in options.detectors and not options.doctor:
        parser.error("the detector ddp-doctor needs --doctor")
    options.doctor = options.doctor and os.path.abspath(options.doctor)
    programs = [program for program in sorted(CORPUS.glob("*.py")) if fnmatch.fnmatch(program.stem, options.only)]
    if not programs:
        parser.error(f"no program matches {options.only}")
    needs = f"import sys; sys.path.insert(0, {str(CORPUS.parent / 'python')!r}); import pathlib, test_corpus; print(test_corpus.unmet_need(pathlib.Path(sys.argv[1])) or '')"
    rows, omitted = [], []
    for program in programs:
        unmet = subprocess.run([options.python, "-c", needs, program], capture_output=True, text=True).stdout.strip()
        if unmet:
            omitted.append(program.stem)
            continue
        rows += examine(options, program)
        if options.json:
            options.json.write_text(json.dumps(rows))
    print("\n".join(table(rows, options.detectors)))
    if omitted:
        print(f"\n{len(omitted)} programs need another torch: {', '.join(omitted)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
