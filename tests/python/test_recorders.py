# SPDX-License-Identifier: BSD-3-Clause
"""One program in Python, in C++ and as TorchScript: the recorders write the same rows.

recorded_trainer.py, recorded_trainer.cpp and recorded*.pt (make_fixtures.cpp) train the same weights on the same data. Their records are
compared table by table and column by column; what may differ is listed in EXPECTED, with the reason.
"""
import hashlib
import os
import pathlib
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile

import parity

FIXTURES = pathlib.Path(os.environ["FIXTURES"])
PYTHON, CPP, SCRIPT = "python", "cpp", "script"
WORLD, STEPS = 2, 6
FLAGS = ("used", "reached_known", "reached", "in_output_known", "in_output", "frozen", "replaced", "in_optimizer", "assigned")
STAGES = ("local gradient", "gradient", "weight", "buffer", "reduced gradient", "gradient at collective", "weight before", "accumulated", "before backward")

# program, strategy, micro-batches a step, --every
CASES = [
    ("recorded.pt", "ddp", 1, 1),
    ("recorded.pt", "ddp", 2, 3),
    ("recorded_drops.pt", "ddp-find-unused", 1, 1),
    ("recorded_drops.pt", "ddp-find-unused", 2, 2),
    ("recorded.pt", "bypass", 1, 1),
    ("recorded.pt", "allreduce-each", 1, 1),
    ("recorded_drops.pt", "allreduce-each", 2, 3),
    ("recorded.pt", "two-optimizers", 1, 1),
]


def examined(case, step):
    return step == 1 or step % case[3] == 0


# What may differ, and why: (recorders, whether a difference is of this kind, reason). `key` is the table and what identifies the row, "row" the
# column where only one has the row.
EXPECTED = [
    ((PYTHON, CPP), lambda case, key, column, *_: key[0] == "step" and column == "loss" and not examined(case, key[1]),
     "the Python probe reads the loss from the backward of an examined step; in C++ the program tells it"),
    ((PYTHON, CPP), lambda case, key, column, python, cpp: key[0] == "sample" and key[2] == "before backward" and cpp is None,
     "in C++ a backward is seen from its first gradient on, which has been added up by then"),
    ((PYTHON, CPP), lambda case, key, column, python, cpp: key[0] == "collective" and column in ("file", "line") and not cpp,
     "in C++ a collective's place in the program is not known"),
    ((CPP, SCRIPT), lambda case, key, column, cpp, script: key[0] == "step" and column == "loss" and case[2] > 1 and abs(cpp * case[2] - script) < 1e-6,
     "the worker knows the loss of a micro-batch before it is divided for accumulation"),
    ((CPP, SCRIPT), lambda case, key, column, cpp, script: key[0] in ("digest", "sample") and key[1:3] == (0, "buffer") and column != "row",
     "the worker writes step 0 before the first forward, a program at its first optimizer step"),
    ((CPP, SCRIPT), lambda case, key, column, cpp, script: key[:2] == ("kept_values", 0) and script is None,
     "ranks of the worker load the same file: the values of step 0 are no question"),
    ((CPP, SCRIPT), lambda case, key, column, cpp, script: key[0] == "usage" and column.startswith("in_output") and not cpp and case[1] != "ddp",
     "the worker sees what a forward without the wrapper returns"),
]


def run(recorder, program, strategy, accumulate, every, folder):
    out = folder / recorder
    command = [parity.DOCTOR, "run", "--nproc-per-node", str(WORLD), "--every", str(every), "--out", str(out), "--fail-on", "never", "-q"]
    if recorder == SCRIPT:
        command += ["--strategies", strategy, "--steps", str(STEPS), "--accumulate", str(accumulate), "--optimizer", "sgd", "--lr", "0.01",
                    str(FIXTURES / program)]
        return ranks_of(command, out)
    trainer = [os.environ["RECORDED_TRAINER"]] if recorder == CPP else [sys.executable, str(parity.HERE / "recorded_trainer.py")]
    command += ["--warmup", "1", "--", *trainer, str(FIXTURES / program), strategy, str(STEPS), str(accumulate)]
    return ranks_of(command, out)


def ranks_of(command, out):
    for last in (False, True):  # torch 1.13's Gloo threads can deadlock where a process group ends
        try:
            done = subprocess.run(command, env=parity.ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            break
        except subprocess.TimeoutExpired:
            if last:
                raise
            shutil.rmtree(out, ignore_errors=True)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout.decode()[-3000:]}"
    return [read(next(out.rglob(f"rank-{rank:05}.sqlite"))) for rank in range(WORLD)]


def read(file):
    """{(table, key...): {column: value}} of a record, with the names of tensors in place of their numbers."""
    record = sqlite3.connect(file)
    record.row_factory = sqlite3.Row
    rows, names = {}, {}
    for row in record.execute("select * from tensor"):
        names[row["id"]] = row["name"]
        rows["tensor", row["name"]] = {key: row[key] for key in row.keys() if key not in ("id", "name")}
    for row in record.execute("select * from step"):
        rows["step", row["step"]] = {key: row[key] for key in row.keys() if key not in ("step", "started_ns", "duration_ns", "probe_ns")}
    for row in record.execute("select * from collective"):
        rows["collective", row["step"], row["position"]] = {key: row[key] for key in row.keys() if key not in ("step", "position")}
    for row in record.execute("select * from kept_values"):
        rows["kept_values", row["step"], STAGES[row["stage"]], names[row["tensor"]]] = {"bytes": hashlib.sha256(row["bytes"]).hexdigest()}
    lists = {}
    for row in record.execute("select list, tensor from tensor_list order by list, position"):
        lists.setdefault(row["list"], []).append(names[row["tensor"]])
    for row in record.execute("select * from seen join content on id = content"):
        table, unpack = (("digest", digests), ("sample", samples), ("usage", usages))[row["what"]]
        tensors = lists[row["list"]]
        for name, columns in zip(tensors, unpack(row["bytes"], len(tensors))):
            rows[(table, row["step"]) + (() if table == "usage" else (STAGES[row["stage"]],)) + (name,)] = columns
    return rows


def digests(data, count):
    figures = [struct.unpack_from(f"={count}d", data, at * count) for at in (16, 24)]
    nonfinite = struct.unpack_from(f"={count}q", data, 32 * count) if len(data) > 32 * count else [0] * count
    return [
        {"bits": data[16 * i:16 * i + 16].hex(), "norm": figures[0][i], "max_abs": figures[1][i], "nonfinite": nonfinite[i]}
        for i in range(count)
    ]


def samples(data, count):
    width = data[0]
    lengths = data[1:1 + count]
    values = struct.unpack_from(f"={8 * count}{'f' if width == 4 else 'd'}", data, 1 + count)
    return [{"values": values[8 * i:8 * i + lengths[i]]} for i in range(count)]


def usages(data, count):
    found = []
    for i in range(count):
        flags, arrivals, last_backward = struct.unpack_from("=Hii", data, 10 * i)
        found.append(dict({name: flags >> bit & 1 for bit, name in enumerate(FLAGS)}, arrivals=arrivals, last_backward=last_backward))
    return found


def differences(one, other):
    """(key, column, value in one, value in the other); a row that one side lacks has the column "row"."""
    for key in sorted(set(one) | set(other), key=str):
        if key not in one or key not in other:
            yield key, "row", one.get(key), other.get(key)
            continue
        for column in sorted(set(one[key]) | set(other[key])):
            if one[key].get(column) != other[key].get(column):
                yield key, column, one[key].get(column), other[key].get(column)


def compare(case, met):
    program, strategy, accumulate, every = case
    title = f"{program} {strategy}, {accumulate} micro-batches a step, every {every}"
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-parity-") as name:
        recorders = [PYTHON, CPP] + [SCRIPT] * (strategy != "two-optimizers")
        records = {recorder: run(recorder, *case, pathlib.Path(name)) for recorder in recorders}
    wrong = []
    for one, other in zip(recorders, recorders[1:]):
        for rank in range(WORLD):
            for key, column, theirs, ours in differences(records[one][rank], records[other][rank]):
                reasons = [reason for pair, fits, reason in EXPECTED if pair == (one, other) and fits(case, key, column, theirs, ours)]
                met.update(reasons)
                if not reasons:
                    wrong.append(f"rank {rank}: {' '.join(map(str, key))}, {column}: {one} {theirs}, {other} {ours}")
    assert not wrong, f"{title}:\n" + "\n".join(wrong[:200])
    print(f"{title}: {sum(len(record) for record in records[PYTHON])} rows compared")


if __name__ == "__main__":
    parity.require_torch()
    met = set()
    for case in CASES:
        compare(case, met)
    never = [reason for _, _, reason in EXPECTED if reason not in met]
    assert not never, "these differences were expected and did not occur:\n" + "\n".join(never)
