#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The size of a record after a day of training: rows of synthetic steps, written as fast as possible. Needs no torch.

usage: record_growth.py --doctor BUILD/bin/ddp-doctor [--steps 432000] [--parameters 400] [--every 10]

432,000 steps are a day at 5 steps per second. What is seen of an examined step: local, reduced and final gradients, weights, samples,
usage, all of them other values than in the step before.
"""
import argparse
import ctypes
import os
import pathlib
import sys
import tempfile
import time

import made_up

WARMUP = 20
ELEMENTS = 64


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doctor", required=True)
    for name, default in (("steps", 432_000), ("parameters", 400), ("every", 10)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"[{default}]")
    options = parser.parse_args()
    doctor = pathlib.Path(options.doctor).absolute()
    sys.path.insert(0, str(doctor.parent.parent / "libexec/ddp-doctor/python"))
    from ddp_doctor_probe import entry, native

    ids = list(range(options.parameters))
    values = (ctypes.c_float * (options.parameters * ELEMENTS))(*range(options.parameters * ELEMENTS))
    changing = (ctypes.c_int32 * (options.parameters * ELEMENTS)).from_buffer(values)
    pointers = [ctypes.addressof(values) + 4 * ELEMENTS * i for i in ids]
    both = native.DIGEST | native.SAMPLE

    with tempfile.TemporaryDirectory(prefix="ddp-doctor-bench-") as folder:
        record = native.Record(folder, {"rank": 0, "world_size": 1, "probe": "python", "program": "made-up", "details": {}, "every": options.every, "warmup": WARMUP}, 0)
        record.tensors([
            {"id": i, "name": f"layers.{i}.weight", "kind": "parameter", "dtype": "float32", "sizes": [ELEMENTS], "trainable": True,
             "ddp_index": i, "module": f"layers.{i}", "wrapper": 0} for i in ids])

        def size():
            return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if ".sqlite" in name)

        def look(stage, number):
            for i in ids:
                changing[ELEMENTS * i + 4] = 8 * number + stage  # one of those that are sampled
            record.observe(stage, both, ids, pointers)

        steps = made_up.Steps(record, entry, options.parameters, ELEMENTS)
        begin, examined = time.monotonic(), 0
        print("| steps | examined | record | bytes per step and parameter |\n|---|---|---|---|")
        for step in range(1, options.steps + 1):
            steps.trains()
            if record.is_recorded():
                examined += 1
                look(native.LOCAL, step)
                look(native.REDUCED, step)
                record.observe(native.GRADIENT, both, ids, pointers)
                look(native.WEIGHT, step)
            steps.ends(200_000_000)
            if step in (1000, 10_000, options.steps) or step % (options.steps // 6) == 0:
                print(f"| {step:,} | {examined:,} | {size() / 1e6:,.0f} MB | {size() / step / options.parameters:.1f} |", flush=True)
        record.close()
        print(f"\nAfter it was closed: {size() / 1e6:,.0f} MB. Written in {time.monotonic() - begin:.0f} s.")


if __name__ == "__main__":
    main()
