# SPDX-License-Identifier: BSD-3-Clause
"""The cost of an event from Python, through ctypes: a phase in the progress map, a hand-written collective in the call log (begin and
end). Prints nanoseconds, the best of several rounds.

usage: DDP_DOCTOR=build/dev/bin/ddp-doctor events_python.py
"""
import os
import pathlib
import sys
import tempfile
import timeit

LIBEXEC = pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor"
sys.path.insert(0, str(LIBEXEC / "python"))
from ddp_doctor_probe import native  # noqa: E402

ROUNDS, TIMES = 7, 20000


def main():
    with tempfile.TemporaryDirectory() as folder:
        record = native.Record(folder, {"rank": 0, "world_size": 1, "probe": "bench", "program": "", "details": {}}, 0)

        def call():
            record.call_ends(record.call_begins(7, True, "all_reduce", "sum", "float32", 1024, "", "before-step",
                                                "gradient of transformer.h.11.mlp.c_proj.weight", "/home/user/train.py", 42))

        for name, event in (("progress_map", lambda: record.enter(native.FORWARD, 7)), ("call_log", call)):
            best = min(timeit.repeat(event, number=TIMES, repeat=ROUNDS)) / TIMES
            print(f"{name:14} {best * 1e9:8.0f} ns")


if __name__ == "__main__":
    main()
