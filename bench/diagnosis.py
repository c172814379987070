#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Time and memory of the diagnosis of a large run: `ddp-doctor report` on synthetic records.

usage: diagnosis.py --doctor BUILD/bin/ddp-doctor [--ranks 8] [--steps 1000] [--parameters 300] [--every 10] [--bug STEP] [--mesh 4x2]
                    [--out DIR] [--fit]

Every rank has the given number of parameters of 64 elements; the steps that are looked at are those of `run --every N --warmup 20`, each with local,
reduced and final gradients, weights, samples and usage. From --bug on, one gradient and its weight differ on the last rank. --mesh: the ranks lie on a mesh of two
dimensions, dp and tp; two of three parameters are declared DTensors of which each tp rank holds another shard, the others replicated. --fit: also with half and a quarter
of the ranks, examined steps and parameters, each by itself, and the exponent by which processor time grows with it: of a second report, since
what the system spends on bringing the records back from the disk depends on how many of them its cache still holds. Needs no torch.
"""
import argparse
import contextlib
import ctypes
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import made_up

WARMUP = 20
ELEMENTS = 64


def write_rank(probe, folder, rank, options):
    native, entry = probe
    record = native.Record(os.fspath(folder), {
        "rank": rank, "world_size": options.ranks, "probe": "python", "program": "made-up",
        "details": {"every": str(options.every), "warmup": str(WARMUP)}, "every": options.every, "warmup": WARMUP,
    }, 0)
    ids = list(range(options.parameters))
    on_mesh = options.mesh[1] > 1
    record.tensors([
        {"id": i, "name": f"layers.{i}.weight", "kind": "parameter", "dtype": "float32", "sizes": [ELEMENTS], "trainable": True,
         "module": f"layers.{i}", **({} if on_mesh else {"ddp_index": i, "wrapper": 0})}
        for i in ids
    ])
    record.write("ddp_fields", [] if on_mesh else [
        {"moment": "construction", "key": key, "value": value, "is_integer": True, "wrapper": 0}
        for key, value in (("world_size", str(options.ranks)), ("find_unused_parameters", "0"), ("static_graph", "0"))
    ])
    # Gradients are views of one buffer, at another place for each rank and step where they are local.
    numbers = random.Random(7)
    bytes_ = 4 * ELEMENTS
    buffer = (ctypes.c_float * (options.parameters * ELEMENTS + 4096))(*(numbers.uniform(-1, 1) for _ in range(options.parameters * ELEMENTS + 4096)))
    base = ctypes.addressof(buffer)
    _, width = options.mesh
    shards = [100 * (rank % width) if i % 3 and on_mesh else 0 for i in ids]
    if on_mesh:
        declare(record, options)

    def at(offset):
        return [base + 4 * (offset % 3300 + shards[i]) + bytes_ * i for i in ids]

    both = native.DIGEST | native.SAMPLE
    steps = made_up.Steps(record, entry, options.parameters, ELEMENTS, wrapped=not on_mesh)
    for step in range(options.steps + 1):
        examined = step == 0 or record.is_recorded()
        if step > 0:
            steps.trains()
        if step > 0 and examined:
            record.observe(native.LOCAL, both, ids, at(step * 31 + rank * 7))
            reduced = at(step)
            record.observe(native.REDUCED, both, ids, reduced)
            if options.bug and step >= options.bug and rank == options.ranks - 1:
                reduced[-1] += 4
            record.observe(native.GRADIENT, both, ids, reduced)
        if examined:
            weights = at(step * 17)
            if options.bug and step >= options.bug and rank == options.ranks - 1:
                weights[-1] += 4
            record.observe(native.WEIGHT, both, ids, weights)
        if step == 0:
            steps.initial()
        else:
            steps.ends(1_000_000)
    record.write("event", {"step": options.steps, "time_ns": 1, "kind": "end", "phase": "finished", "text": ""})
    record.close()


def declare(record, options):
    """As the probe records DTensors that are replicated along dp, and of which two of three are sharded along tp."""
    height, width = options.mesh
    mesh = {"mesh": [[row * width + column for column in range(width)] for row in range(height)], "dimensions": ["dp", "tp"]}
    facts = [("mesh", "0", mesh)]
    for i in range(options.parameters):
        placements = ["Replicate", "Shard(0)" if i % 3 else "Replicate"]
        facts.append(("placement", f"layers.{i}.weight", {"placements": placements, "source": "DTensor", "mesh": 0}))
    for subject, key, value in facts:
        record.write("fact", {"step": 0, "subject": subject, "key": key, "value": value})


def mesh_of(text):
    height, _, width = text.partition("x")
    return int(height), int(width)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor", required=True)
    for name, default in (("ranks", 8), ("steps", 1000), ("parameters", 300), ("every", 10), ("bug", 0)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"[{default}]")
    parser.add_argument("--mesh", type=mesh_of, help="HEIGHTxWIDTH, as many as there are ranks")
    parser.add_argument("--out", help="keeps the records there")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    options.mesh = options.mesh or (options.ranks, 1)
    if math.prod(options.mesh) != options.ranks or (options.fit and options.mesh[1] > 1):
        parser.error("--mesh needs as many ranks as it has places, and no --fit")
    whole = examine(options)
    if options.fit:
        options.out = None
        rows = []
        for name in ("ranks", "steps", "parameters"):
            parts = [argparse.Namespace(**dict(vars(options), **{name: getattr(options, name) // part})) for part in (4, 2)] + [options]
            size = [examined_steps(part) if name == "steps" else getattr(part, name) for part in parts]
            times = [*map(examine, parts[:-1]), whole]
            cells = " | ".join(f"{count:,}: {seconds:.2f} s" for count, seconds in zip(size, times))
            rows.append(f"| {'examined steps' if name == 'steps' else name} | {cells} | {math.log(times[2] / times[0]) / math.log(size[2] / size[0]):.2f} |")
        print("\n| processor time | about a quarter | about half | whole | exponent |\n|---|---|---|---|---|", *rows, sep="\n")


def examined_steps(options):
    return sum(1 for step in range(1, options.steps + 1) if step <= WARMUP or step % options.every == 0)


def examine(options):
    """Seconds of processor time that the report took, with --fit a second one."""
    doctor = pathlib.Path(options.doctor).absolute()
    sys.path.insert(0, str(doctor.parent.parent / "libexec/ddp-doctor/python"))
    from ddp_doctor_probe import entry, native

    with contextlib.ExitStack() as stack:
        folder = options.out or stack.enter_context(tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-"))
        run = pathlib.Path(folder) / "00-as-is"
        run.mkdir(parents=True)
        begin = time.monotonic()
        for rank in range(options.ranks):
            write_rank((native, entry), run, rank, options)
        exits = [{"rank": rank, "kind": "exited", "code": 0, "time_ns": 1, "step": options.steps + 1, "phase": "finished", "last_words": ""}
                 for rank in range(options.ranks)]
        (run / "run.json").write_text(json.dumps({
            "schema_version": 1, "index": 0, "program": "made-up", "strategy": "as-is", "world_size": options.ranks, "steps": 0,
            "settings": {}, "exits": exits, "notes": [], "failure": ""}))
        written = time.monotonic() - begin
        size = sum(file.stat().st_size for file in run.iterdir())

        os.sync()
        took, busy, memory, report = diagnose(doctor, folder)
        again = diagnose(doctor, folder)[1] if options.fit else busy
    found = [f"{finding['rule']} from step {finding['first_step']}" for finding in report["findings"]] or ["healthy"]
    print(f"{options.ranks} ranks x {options.steps} steps ({examined_steps(options)} examined) x {options.parameters} parameters: {took:.2f} s, "
          f"{memory:.0f} MB, {', '.join(found)} (processor: {busy:.2f} s; records: {size / 1e6:.0f} MB, "
          f"made in {written:.0f} s)", flush=True)
    return again


def diagnose(doctor, folder):
    """Seconds, seconds of processor time, MB and the report itself."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as text:
        process = subprocess.Popen([doctor, "report", folder, "--format", "json"], stdout=text, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - begin
        text.seek(0)
        said = text.read().decode()
    if process.returncode not in (0, 1):
        raise SystemExit(f"report ended with {process.returncode}:\n{said[-2000:]}")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(said)


if __name__ == "__main__":
    main()
