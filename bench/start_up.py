#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time until the first answer: `--version`, `explain DDP101`, and `run` of a tiny program with its default strategies against `import torch`.

usage: start_up.py --doctor BUILD/bin/ddp-doctor [--program BUILD/examples/curriculum.pt] --python PYTHON [--runs N] [--short N]

PYTHON has torch. Everything takes turns, so that what else happens on the machine meets all; the short commands, which noise moves most, take
several turns in each round. Targets: `explain` under 10 ms, `run` under 2.0 times `python -c "import torch"`, by medians of N rounds. `fork and
exec` is what starting any process costs here: /bin/true by the same means.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import time

EXPLAIN_MS, RUN_RATIO = 10, 2.0


def milliseconds(command, env, good=(0,)):
    begin = time.perf_counter()
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
    took = time.perf_counter() - begin
    if done.returncode not in good:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return 1e3 * took


def shown(value):
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def met(yes):
    return "met" if yes else "**missed**"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor", required=True, type=pathlib.Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--program", type=pathlib.Path, help="[BUILD/examples/curriculum.pt]")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--short", type=int, default=10, help="turns of the short commands in each round [10]")
    options = parser.parse_args()
    program = options.program or options.doctor.resolve().parent.parent / "examples/curriculum.pt"
    env = dict(os.environ, OMP_NUM_THREADS="1")
    doctor = str(options.doctor.absolute())
    short = {"fork and exec": ["/bin/true"], "--version": [doctor, "--version"], "explain DDP101": [doctor, "explain", "DDP101"]}
    long = {"run": [doctor, "run", str(program), "--fail-on", "never"], "import torch": [options.python, "-c", "import torch"]}
    times = {name: [] for name in (*short, *long)}
    for command in (*short.values(), *long.values()):
        milliseconds(command, env)  # warm the file cache
    for _ in range(options.runs):
        for _ in range(options.short):
            for name, command in short.items():
                times[name].append(milliseconds(command, env))
        for name, command in long.items():
            times[name].append(milliseconds(command, env))

    ratios = [run / python for run, python in zip(times["run"], times["import torch"])]
    explain, ratio = statistics.median(times["explain DDP101"]), statistics.median(times["run"]) / statistics.median(times["import torch"])
    print("| | median | quartiles | range | target |\n|---|---|---|---|---|")
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        titles = {"run": f"`ddp-doctor run {program.name}`, three strategies", "import torch": "`python -c 'import torch'`", "fork and exec": "/bin/true"}
        target = f"under {EXPLAIN_MS} ms: {met(explain < EXPLAIN_MS)}" if name == "explain DDP101" else ""
        print(f"| {titles.get(name, f'`ddp-doctor {name}`')} | {shown(middle)} | {shown(low)} to {shown(high)} | {shown(min(values))} to {shown(max(values))}, {len(values)} runs | {target} |")
    print(f"| `run` against `import torch` | {ratio:.2f} | | {min(ratios):.2f} to {max(ratios):.2f}, round by round | under {RUN_RATIO}: {met(ratio < RUN_RATIO)} |")


if __name__ == "__main__":
    main()
