#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cost of the gate: wall time of `ddp-doctor check PROGRAM` against the same program's plain run under torchrun, in turn.

usage: gate.py --doctor BUILD/bin/ddp-doctor --python PYTHON [--runs N] PROGRAM... [-- ARGUMENTS]

PYTHON has torch. The start of Python and torch is in both. Prints both medians and the ratio pair by pair.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def seconds(command, env):
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
        begin = time.perf_counter()
        done = subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        took = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stdout.decode(errors='replace')[-2000:]}")
    return took


def main():
    words = []
    if "--" in sys.argv:
        at = sys.argv.index("--")
        sys.argv, words = sys.argv[:at], sys.argv[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()
    env = dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0", DDP_DOCTOR_PYTHON=options.python)
    doctor = os.path.abspath(options.doctor)
    for program in options.programs:
        path = str(pathlib.Path(program).resolve())
        gate = [doctor, "check", path, "--", *words]
        plain = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", path, *words]
        for command in (gate, plain):
            seconds(command, env)  # warm the file cache
        pairs = [(seconds(gate, env), seconds(plain, env)) for _ in range(options.runs)]
        ratios = [a / b for a, b in pairs]
        print(f"{pathlib.Path(program).name:36} check {statistics.median(a for a, _ in pairs):6.2f} s, plain {statistics.median(b for _, b in pairs):6.2f} s, "
              f"ratio {statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs)", flush=True)


if __name__ == "__main__":
    main()
