#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the step costs that `compare` and `run --fix` report, with real runs whose true cost is known.

usage: timing_method.py --doctor BUILD/bin/ddp-doctor [--python PYTHON] [--trials N] [--repeats N] [--slower 0.1] [--steps N]

One `ddp-doctor compare program program "program --slower 0.1"` with trials x repeats rounds; each trial is a share of consecutive rounds, read again by
`ddp-doctor report`, which is what `compare --repeats N` would have said of them. In each trial

    A/A      the same program twice: the interval should hold 1.00, and the difference not be called measurable
    slower   each step waits, spinning, for a tenth of what its forward and backward took: it should be called measurable, and the interval hold 1.10

A program that is called measurably different from itself in more than 5 % of many trials, or an interval that misses the truth more often, is a defect.
With --script PROGRAM.pt the A/A test is of a TorchScript program under one strategy; its runs start within a tenth of a second.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def train(steps, slower):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    for _ in range(steps):
        inputs, labels = torch.randn(64, 256), torch.randint(10, (64,))
        begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), labels).backward()
        end = begin + (1 + slower) * (time.perf_counter() - begin)
        while slower and time.perf_counter() < end:
            pass
        optimizer.step()
    dist.destroy_process_group()


def compare(options, words, rounds, out):
    command = [options.doctor, "compare", *words, "--repeats", str(rounds), "--out", out, "--format", "json"]
    begin = time.monotonic()
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0"))
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return time.monotonic() - begin


def costs_of_trials(options, folder, programs, repeats):
    """The costs that `report` shows for each group of `repeats` rounds: a list of trials, each with the costs of all programs except the first."""
    runs = sorted((run for run in folder.iterdir() if run.is_dir()), key=lambda run: int(run.name.split("-")[0]))
    first, again = runs[:programs], runs[programs:]
    size = repeats * programs
    trials = []
    for begin in range(0, len(again) - size + 1, size):
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as share:
            for number, run in enumerate(first + again[begin:begin + size]):
                (pathlib.Path(share) / f"{number:02}-{run.name.split('-', 1)[1]}").symlink_to(run)
            report = subprocess.run([options.doctor, "report", share, "--format", "json"], stdout=subprocess.PIPE, check=False).stdout
        trials.append([run["cost"] for run in json.loads(report)["runs"][1:]])
    return trials


def row(name, truth, costs):
    if not costs:
        return
    said = sum(cost["measurable"] for cost in costs)
    held = sum(cost["low"] <= truth <= cost["high"] for cost in costs)
    print(f"| {name} | {truth:.2f} | {costs[0]['pairs']} | {len(costs)} | {said} of {len(costs)} | {held} of {len(costs)} "
          f"| {statistics.median(cost['ratio'] for cost in costs):.3f} | {statistics.median(cost['high'] - cost['low'] for cost in costs):.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--doctor", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="has torch [this one]")
    parser.add_argument("--trials", type=int, default=8, help="[8]")
    parser.add_argument("--repeats", type=int, default=6, help="[6, the default of run --fix]")
    parser.add_argument("--steps", type=int, default=60, help="of each run [60]")
    parser.add_argument("--slower", type=float, default=0.0, help="[0.1]")
    parser.add_argument("--script", type=pathlib.Path, help="a TorchScript program for more A/A trials")
    parser.add_argument("--script-trials", type=int, default=20, help="[20]")
    options = parser.parse_args()
    if options.train:
        return train(options.steps, options.slower)
    if not options.doctor:
        parser.error("--doctor is needed: BUILD/bin/ddp-doctor")
    options.doctor = options.doctor.absolute()
    slower = options.slower or 0.1
    rounds = options.trials * options.repeats
    print("| test | truth | pairs in a trial | trials | called measurable | interval holds the truth | median ratio | median width of the interval |")
    print("|---|---|---|---|---|---|---|---|")
    notes = []
    if options.script:
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
            out = pathlib.Path(folder) / "run"
            took = compare(options, [f"{options.script}@ddp", f"{options.script}@ddp", "--steps", "100"], options.script_trials * options.repeats, out)
            for repeats in (options.repeats, 2 * options.repeats):
                row(f"A/A, {options.script.name}", 1.0, [costs[0] for costs in costs_of_trials(options, out, 2, repeats)])
        notes.append(f"{options.script.name}: {took:.0f} s")
    if options.trials:
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
            out = pathlib.Path(folder) / "run"
            program = f"{__file__} --train --steps {options.steps}"
            took = compare(options, [program, program, f"{program} --slower {slower}", "--python", str(pathlib.Path(options.python).absolute())], rounds, out)
            for repeats in (options.repeats, 2 * options.repeats):
                trials = costs_of_trials(options, out, 3, repeats)
                row("A/A, in Python", 1.0, [costs[0] for costs in trials])
                row(f"slower by {100 * slower:.0f} %, in Python", 1 + slower, [costs[1] for costs in trials])
        notes.append(f"Python: {took:.0f} s")
    print(f"\n- twice as many pairs in a trial: the same rounds, in half as many trials; load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; "
          + ", ".join(notes))


if __name__ == "__main__":
    main()
