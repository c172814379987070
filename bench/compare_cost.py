#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cost of comparing strategies: wall time of one `ddp-doctor compare` against the sum of the steps that it trains.

usage: compare_cost.py --doctor BUILD/bin/ddp-doctor [--program BUILD/examples/gpt.pt] [--steps 8] [--repeats 3]

A step takes as long as its slowest rank, without what ddp-doctor itself does in it.
"""
import argparse
import pathlib
import sqlite3
import statistics
import subprocess
import tempfile
import time

STRATEGIES = ("ddp", "ddp-find-unused", "ddp-static-graph", "allreduce-each", "allreduce-flat")


def trained_seconds(folder):
    total = 0
    for run in folder.glob("[0-9]*-*"):
        slowest = {}
        for record in run.glob("rank-*.sqlite"):
            with sqlite3.connect(record) as database:
                for step, duration in database.execute("SELECT step, duration_ns FROM step WHERE step > 0"):
                    slowest[step] = max(slowest.get(step, 0), duration)
        total += sum(slowest.values())
    return total / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor", required=True, type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--steps", default="8")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    program = options.program or options.doctor.resolve().parent.parent / "examples/gpt.pt"
    ratios = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as name:
            out = pathlib.Path(name) / "run"
            begin = time.monotonic()
            subprocess.run([options.doctor, "compare", f"{program}@{','.join(STRATEGIES)}", "--steps", options.steps, "--out", out],
                           check=True, stdout=subprocess.DEVNULL)
            wall = time.monotonic() - begin
            trained = trained_seconds(out)
        ratios.append(wall / trained)
        print(f"wall {wall:.1f} s, training {trained:.1f} s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
