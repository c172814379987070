#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""TrainCheck (OSDI '25, https://github.com/OrderLab/TrainCheck) as a detector for bugbench.py, in its own best case: the invariants are inferred
from the corrected twin of the program itself.

usage: traincheck_detector.py --nproc-per-node N PROGRAM [ARGUMENT...]
       bugbench.py --python VENV/bin/python --other "traincheck=VENV/bin/python bench/traincheck_detector.py" --detectors traincheck

Run it with the Python of an environment that has traincheck and a torch that it supports. Options come before PROGRAM.

    1. traincheck-collect   `PROGRAM fixed` (a program without an argument: itself), --references times
    2. traincheck-infer     the invariants that hold in these runs
    3. traincheck-collect   `PROGRAM ARGUMENT...`: a run of its own, also where it is `fixed`
    4. traincheck-check     this run against the invariants

Ends with 1 if an invariant is violated (prints them), with 0 if none is, with 3 if it could not tell: no trace, no invariant, an error, the deadline.
Of a run that fails or hangs, the trace up to there is checked; if it violates nothing, the end is 3.

How the programs are traced follows what TrainCheck's authors do with distributed programs (TrainCheck-Evaluation-Workloads: ddp-multigpu,
x-jxmnop-ddp-out-of-sync): calls of torch with the default instrumentation, parameters by VarSampler after each step, _DATA_PARALLEL_RANK noted.
The styles `proxy` and `subclass` replace parameters, which DistributedDataParallel does not survive or notice. --models-to-track needs the names of
variables, and that model and optimizer are assigned in a certain way; the sampler is made by hand instead (PRELUDE), as its messages recommend.
Both runs are traced in full, since --invariants leaves out arguments that the invariants need.
"""
import argparse
import ast
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

CAUGHT, NOTHING, UNKNOWN = 1, 0, 3
BIN = pathlib.Path(sys.executable).parent
PRINTED = 40  # violated invariants

# Imported by the program before anything else. Without a driver, a torch that was built for CUDA is made to look like one that was not: TrainCheck
# looks at every attribute of torch, and expects the error of the latter.
PRELUDE = '''
import gc, os
import torch

if not torch.cuda.is_available():
    vars(torch._C).pop("_cuda_getDeviceCount", None)

from torch.optim import optimizer as optimizers
from traincheck.instrumentor import META_VARS, VarSampler

META_VARS["_DATA_PARALLEL_RANK"] = int(os.environ["RANK"])
modules_of = {}  # optimizer: the outermost modules that it updates
samplers = {}  # module: its sampler


def before(optimizer, *_):
    if id(optimizer) in modules_of:
        return
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    modules = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module)]
    modules = [m for m in modules if any(id(p) in mine for p in m.parameters())]
    inner = {id(c) for m in modules for c in m.modules() if c is not m}
    modules_of[id(optimizer)] = [m for m in modules if id(m) not in inner]
    # the first sample, as if it were taken where the model is made: of stage init, without gradients
    now = {name: META_VARS.get(name) for name in ("step", "stage")}
    META_VARS.update(step=0, stage="init")
    for m in modules_of[id(optimizer)]:
        if id(m) not in samplers:
            gradients = [(p, p.grad) for p in m.parameters()]
            for p, _ in gradients:
                p.grad = None
            samplers[id(m)] = VarSampler(m, var_name="model" + (str(len(samplers)) if samplers else ""))
            for p, gradient in gradients:
                p.grad = gradient
    META_VARS.update(now)


def after(optimizer, *_):
    for m in modules_of.get(id(optimizer), ()):
        samplers[id(m)].dump_sample()


optimizers.register_optimizer_step_pre_hook(before)
optimizers.register_optimizer_step_post_hook(after)
'''

# At the head of the program. Stages that a program names are not set by TrainCheck, which takes each no_grad() for the beginning of `testing`, also
# within a call, and then finds no end of that call. The authors' programs for DDP have `init` and `training`, no others.
HEAD = """import traincheck_prelude
if False: annotate_stage("testing"); annotate_stage("checkpointing")
"""

RANKS = '''
for rank in $(seq 0 {last}); do
    RANK=$rank LOCAL_RANK=$rank {python} program.py {arguments} &
done
status=0
for rank in $(seq 0 {last}); do
    wait -n || {{ status=$?; sleep 2; kill $(jobs -p) 2>/dev/null; }}
done
exit $status
'''


class Unknown(Exception):
    """TrainCheck cannot tell."""


said = []


def say(*words):
    said.append(" ".join(map(str, words)))
    print("traincheck:", said[-1], flush=True)


def run(command, folder, environment, seconds):
    """Whether it ended in time, its exit code, output and duration. All that it started is ended with it: it is in this process's group."""
    began, used = time.monotonic(), os.times()
    with tempfile.TemporaryFile("w+", errors="replace") as text:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=text, stderr=subprocess.STDOUT)
        try:
            process.wait(seconds)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
            os.killpg(0, signal.SIGTERM)  # this process has a handler
            process.wait()
        text.seek(0)
        now = os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        return ended, process.returncode, text.read(), f"{time.monotonic() - began:.0f} s ({cpu:.0f} s of CPU)"


def cut_last_lines(folder):
    """A process that was ended did not write its last line to the end."""
    for file in folder.glob("trace_*"):
        text = file.read_bytes()
        file.write_bytes(text[: text.rfind(b"\n") + 1])
        if not file.stat().st_size:
            file.unlink()


def collect(options, work, name, arguments, seconds):
    """The trace of a run, and what was wrong with the run, if anything."""
    source = options.program.read_text()
    first = next(node for node in ast.parse(source).body if isinstance(node, (ast.Import, ast.ImportFrom)))
    lines = source.splitlines(keepends=True)
    lines.insert(first.lineno - 1, HEAD)
    folder = work / name
    folder.mkdir()
    (folder / "program.py").write_text("".join(lines))
    (folder / "traincheck_prelude.py").write_text(PRELUDE)
    (folder / "run.sh").write_text(RANKS.format(last=options.ranks - 1, python=sys.executable, arguments=" ".join(arguments)))
    trace = folder / "trace"
    command = [BIN / "traincheck-collect", "--pyscript", "program.py", "--shscript", "run.sh", "--output-dir", trace]
    port = 20000 + zlib.crc32(options.program.name.encode()) % 10000  # the same in all runs: it is an argument of traced calls
    environment = {**os.environ, "WORLD_SIZE": str(options.ranks), "LOCAL_WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "USE_LIBUV": "0", "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}
    ended, code, output, took = run(command, folder, environment, seconds)
    say(f"traced {name} in {took}")
    if not ended:
        cut_last_lines(trace)
    wrong = "no end within the deadline" if not ended else f"exit code {code}\n{output[-1500:]}" if code else None
    if not any(file.stat().st_size for file in trace.glob("trace_*")):
        raise Unknown(f"no trace of {name}: {wrong or output[-1500:]}")
    if wrong:
        cut_last_lines(trace)
    return trace, wrong


def infer(options, work):
    kept = options.keep and options.keep / f"{options.program.stem}-{options.references}.json"
    if kept and kept.exists():
        return kept
    arguments = ["fixed"] if options.arguments else []
    traces = []
    for reference in range(options.references):
        trace, wrong = collect(options, work, f"reference{reference}", arguments, options.timeout)
        if wrong:
            raise Unknown(f"the reference run: {wrong}")
        traces.append(trace)
    invariants = work / "invariants.json"
    ended, code, output, took = run([BIN / "traincheck-infer", "-f", *traces, "-o", invariants], work, os.environ, options.timeout)
    if not ended or code:
        raise Unknown("traincheck-infer: " + ("no end within the deadline" if not ended else output[-1500:]))
    say(f"{len(invariants.read_text().splitlines())} invariants in {took}")
    if not invariants.stat().st_size:
        raise Unknown("no invariants")
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(invariants, kept)
    return invariants


def documents(text):
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        document, at = decoder.raw_decode(text, at)
        at += 1
        yield document


def check(options, work, trace, invariants):
    """The violated invariants, one line each."""
    ended, code, output, took = run(
        [BIN / "traincheck-check", "-f", trace, "-i", invariants, "-o", work / "results", "--no-html-report"], work, os.environ, options.timeout)
    failed = next((work / "results").glob("*/failed.log"), None)
    if not ended or code or not failed:
        raise Unknown("traincheck-check: " + ("no end within the deadline" if not ended else output[-1500:]))
    say(f"checked in {took}")
    for violation in documents(failed.read_text()):
        invariant = violation["invariant"]
        events = violation["trace"] or []
        names = {event["var_name"].partition(".")[2].removeprefix("module.") for event in events if isinstance(event.get("var_name"), str)}
        steps = {event["meta_vars.step"] for event in events if "meta_vars.step" in event}
        yield f"{invariant['relation']}: {invariant['text_description']}; step {' '.join(map(str, sorted(steps)))} {' '.join(sorted(names))}".strip()


def detect(options, work):
    invariants = infer(options, work)
    trace, wrong = collect(options, work, "run", options.arguments, options.run_timeout)
    violated = list(check(options, work, trace, invariants))
    if wrong:
        say(f"the run: {wrong}")
    say(f"{len(violated)} violated invariants")
    for line in violated[:PRINTED]:
        print("   ", line)
    said.extend(violated)
    return CAUGHT if violated else UNKNOWN if wrong else NOTHING


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc-per-node", type=int, default=2, dest="ranks")
    parser.add_argument("--references", type=int, default=1, help="runs to infer the invariants from [1]")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a phase [120]")
    parser.add_argument("--run-timeout", type=float, default=60, help="seconds for the run that is checked, which may hang [60]")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for each program's invariants, for the next run of it, and for what was found")
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: None)
    with tempfile.TemporaryDirectory() as work:
        try:
            return detect(options, pathlib.Path(work))
        except Unknown as unknown:
            say("could not tell:", unknown)
            return UNKNOWN
        finally:
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / "-".join((options.program.stem, *options.arguments, "said.txt"))).write_text("\n".join(said) + "\n")


if __name__ == "__main__":
    sys.exit(main())
