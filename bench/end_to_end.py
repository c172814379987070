#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whole processes, in turn: `ddp-doctor run orphan.pt` with three strategies, against one plain torchrun of the same program.

usage: end_to_end.py --doctor BUILD/bin/ddp-doctor --examples BUILD/examples --python PYTHON [--runs N]

PYTHON has torch and torchrun. Prints both medians and the ratio pair by pair: below 1, ddp-doctor has examined three
strategies before plain Python has run one.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import time


def seconds(command, env):
    begin = time.perf_counter()
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
    took = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor", required=True)
    parser.add_argument("--examples", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    here = pathlib.Path(__file__).resolve().parent
    env = dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0")
    ours = [options.doctor, "run", str(pathlib.Path(options.examples) / "orphan.pt"), "--strategies",
            "ddp,ddp-find-unused,ddp-static-graph", "--fail-on", "never"]
    theirs = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(here / "orphan_python.py")]
    for command in (ours, theirs):
        seconds(command, env)  # warm the file cache
    pairs = [(seconds(ours, env), seconds(theirs, env)) for _ in range(options.runs)]
    ratios = [a / b for a, b in pairs]
    for name, column in (("ddp-doctor, 3 strategies", 0), ("torchrun, 1 setting", 1)):
        times = [pair[column] for pair in pairs]
        print(f"{name:26} median {statistics.median(times):6.2f} s  ({min(times):.2f} to {max(times):.2f}, {len(times)} runs)")
    print(f"{'ratio, pair by pair':26} median {statistics.median(ratios):6.2f}    ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
