#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions that the examination adds to a training step, counted by valgrind's callgrind: numbers that do not depend on the load of the machine.

usage: instructions.py --doctor BUILD/bin/ddp-doctor [--python PYTHON] [--programs shallow,deep] [--before LIBEXEC] [--cpp] [--quick]

One rank (Gloo, world size 1) trains an MLP of 10 (`shallow`) and one of 200 (`deep`) parameter tensors of the same small size, plainly and with the
probe in it. Counting begins after the first steps, and is read at the end of every step, so that steps in between and examined steps of one run are told apart. A figure
is the median over the steps of its kind, so a pass of Python's garbage collector now and then is not in it. `per tensor` is the slope between
the two programs: what is left is paid once per step.

Valgrind runs one thread at a time and offers no AVX-512, so digests take the path for AVX2. Instructions are not time: a cache miss counts as one.

    --before  a second libexec/ddp-doctor, of an older build: libddp-doctor-probe.so and python/ddp_doctor_probe; before and after side by side
    --cpp     also BUILD/bin/events_benchmark and BUILD/bin/examination_benchmark, by the difference between two numbers of iterations

Takes PYTHON's torch as it is; importing torch 1.13 under valgrind takes 20 s, 2.15 a minute. Needs valgrind, its headers and a C compiler.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import python_overhead

BEFORE_COUNTING = 12  # steps: buckets are rebuilt, caches warm
EVERY = 10
HIDDEN = {"shallow": 4, "deep": 99}  # layers, as python_overhead.py's mlp and deep have them
MARKER = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end_of_step(void) { CALLGRIND_DUMP_STATS; }
"""
CPP = (  # benchmark, its cases, two numbers of iterations
    ("events_benchmark", ("progress_map", "call_log", "api_call_log"), (1000, 11000)),
    ("examination_benchmark", ("plain/64", "not_examined/64", "every_step_examined/64"), (20, 60)),
)


# ---- the rank under valgrind


def train(program, steps, marker):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    marker = ctypes.CDLL(marker)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, data, optimizer = python_overhead.mlp(hidden=HIDDEN[program], width=32, batch=8)
    ddp = DistributedDataParallel(model)
    optimizer = optimizer(ddp.parameters(), lr=1e-3)
    inputs, labels = data()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
        optimizer.step()
        if step == BEFORE_COUNTING:
            marker.begin()
        if step > BEFORE_COUNTING:
            marker.end_of_step()
    print("tensors", len(list(model.parameters())), "torch", torch.__version__, flush=True)
    dist.destroy_process_group()


# ---- counting


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def checked(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def make_marker(folder):
    source, library = folder / "marker.c", folder / "marker.so"
    source.write_text(MARKER)
    checked(["cc", "-shared", "-fPIC", "-O1", "-o", library, source])
    return library


def totals(folder):
    """Instructions of each dump, in the order in which they were made."""
    found = {}
    for file in folder.glob("callgrind.out*"):
        text = file.read_text(errors="replace")
        part = re.search(r"^part: (\d+)$", text, re.M)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
        if total:
            found[int(part.group(1)) if part else 0] = int(total.group(1))
    return [found[part] for part in sorted(found)]


def counted_steps(options, marker, program, libexec, every):
    """Instructions of each step from BEFORE_COUNTING + 1 on; plainly without libexec."""
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as name, socket.socket() as one:
        folder = pathlib.Path(name)
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.close()
        environment = dict(os.environ, OMP_NUM_THREADS="1", USE_LIBUV="0", PYTHONHASHSEED="0", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if libexec:
            (folder / "record").mkdir()
            environment.update(PYTHONPATH=str(libexec / "python"), DDP_DOCTOR_RECORD=str(folder / "record"), DDP_DOCTOR_EVERY=str(every),
                               DDP_DOCTOR_WARMUP="1")
        begin = time.monotonic()
        text = checked(["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=" + str(folder / "callgrind.out"), options.python,
                        __file__, "--train", program, "--steps", str(BEFORE_COUNTING + options.steps), "--marker", marker],
                       env=environment, cwd=folder)
        counts = totals(folder)[:options.steps]
        if len(counts) != options.steps:
            raise SystemExit(f"{len(counts)} counts of {options.steps} steps:\n{text[-3000:]}")
        if libexec and not list((folder / "record").glob("rank-*.sqlite")):
            raise SystemExit(f"{libexec}: nothing was recorded:\n{text[-3000:]}")
        found = re.search(r"tensors (\d+) torch (\S+)", text)
        say(f"{program}, {'plain' if not libexec else f'every {every}'}: {time.monotonic() - begin:.0f} s")
        return counts, int(found.group(1)), found.group(2)


def kinds_of_steps(options, marker, program, libexec):
    """Median instructions beyond the plain step, by kind of step."""
    sampled, _, _ = counted_steps(options, marker, program, libexec, EVERY)
    every, _, _ = counted_steps(options, marker, program, libexec, 1)
    numbered = list(enumerate(sampled, BEFORE_COUNTING + 1))
    return {
        "steps in between": statistics.median(count for step, count in numbered if step % EVERY != 0),
        f"examined, 1 of {EVERY}": statistics.median(count for step, count in numbered if step % EVERY == 0),
        "examined, every step": statistics.median(every),
    }


def count_text(count):
    return f"{count / 1e6:.3g} M" if abs(count) >= 1e6 else f"{count / 1e3:.3g} k" if abs(count) >= 1e3 else f"{count:.0f}"


def python_table(options, marker):
    builds = {"after" if options.before else "now": options.doctor.parent.parent / "libexec/ddp-doctor"}
    if options.before:
        builds = {"before": options.before.absolute(), **builds}
    plain, tensors, extra, torch = {}, {}, {}, ""
    for program in options.programs:
        counts, tensors[program], torch = counted_steps(options, marker, program, None, 0)
        plain[program] = statistics.median(counts)
        for build, libexec in builds.items():
            for kind, count in kinds_of_steps(options, marker, program, libexec).items():
                extra[kind, build, program] = count - plain[program]
    kinds = list(dict.fromkeys(kind for kind, _, _ in extra))
    columns = [(build, program) for build in builds for program in options.programs]
    print(f"Instructions per step beyond the plain one, one rank, torch {torch}; plain steps: "
          + ", ".join(f"{count_text(plain[program])} ({tensors[program]} tensors)" for program in options.programs) + "\n")
    slopes = len(options.programs) > 1
    head = [f"{build}: {tensors[program]} tensors" for build, program in columns]
    head += [f"{build}: {what}" for build in builds for what in ("per tensor", "per step besides")] if slopes else []
    print("| step | " + " | ".join(head) + " |\n|---|" + "---|" * len(head))
    for kind in kinds:
        row = [f"{count_text(extra[kind, *column])} (+{100 * extra[kind, *column] / plain[column[1]]:.1f} %)" for column in columns]
        if slopes:
            few, many = min(options.programs, key=tensors.get), max(options.programs, key=tensors.get)
            for build in builds:
                slope = (extra[kind, build, many] - extra[kind, build, few]) / (tensors[many] - tensors[few])
                row += [count_text(slope), count_text(extra[kind, build, few] - slope * tensors[few])]
        print(f"| {kind} | " + " | ".join(row) + " |", flush=True)


def cpp_table(options):
    print("\n| C++ benchmark | case | instructions per iteration |\n|---|---|---|")
    for benchmark, cases, iterations in CPP:
        program = options.doctor.parent / benchmark
        if not program.exists():
            say(f"{program} is not there")
            continue
        for case in cases:
            sums = []
            for number in iterations:
                with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as name:
                    folder = pathlib.Path(name)
                    text = checked(["valgrind", "--tool=callgrind", "--callgrind-out-file=" + str(folder / "callgrind.out"), program,
                                    f"--benchmark_filter=^{case}", "--benchmark_format=json"],
                                   env=dict(os.environ, OMP_NUM_THREADS="1", DDP_DOCTOR_BENCH_ITERATIONS=str(number)), cwd=folder)
                    ran = json.loads(text[text.index("{"):text.rindex("}") + 1])["benchmarks"][0]["iterations"]
                    if ran != number:
                        raise SystemExit(f"{program} ran {ran} iterations, not {number}: it is older than this script")
                    sums.append(sum(totals(folder)))
            say(f"{benchmark} {case}")
            print(f"| {benchmark} | {case} | {count_text((sums[1] - sums[0]) / (iterations[1] - iterations[0]))} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=HIDDEN, help=argparse.SUPPRESS)
    parser.add_argument("--marker", help=argparse.SUPPRESS)
    parser.add_argument("--doctor", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="has torch [this one]")
    parser.add_argument("--programs", default="shallow,deep")
    parser.add_argument("--steps", type=int, default=30, help="steps that are counted [30]")
    parser.add_argument("--before", type=pathlib.Path, metavar="LIBEXEC")
    parser.add_argument("--cpp", action="store_true")
    parser.add_argument("--quick", action="store_true", help="the program of 10 tensors only, 10 steps")
    options = parser.parse_args()
    if options.train:
        return train(options.train, options.steps, options.marker)
    if not options.doctor:
        parser.error("--doctor is needed: BUILD/bin/ddp-doctor")
    if options.quick:
        options.programs, options.steps = "shallow", EVERY
    options.doctor, options.programs = options.doctor.absolute(), options.programs.split(",")
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
        python_table(options, make_marker(pathlib.Path(folder)))
    if options.cpp:
        cpp_table(options)


if __name__ == "__main__":
    main()
