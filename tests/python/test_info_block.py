# SPDX-License-Identifier: BSD-3-Clause
"""The DDP block of a report equals, field by field, what Python's DDP logging data says of the same model."""
import re
import sys

import parity

CASES = [("curriculum.pt", "ddp"), ("orphan.pt", "ddp-find-unused"), ("orphan.pt", "ddp"), ("cnn.pt", "ddp"), ("gpt.pt", "ddp"),
         ("multi_forward.pt", "ddp-static-graph"), ("conditional.pt", "ddp-find-unused")]
# Times, ports and paths differ from run to run. unused_parameter_size is ours to correct: PyTorch up to 2.6 adds up.
VARYING = re.compile(r"_time(_start|_end)?$|^master_port$|^error$")


def comparable(fields):
    return {key: str(value) for key, value in fields.items() if not VARYING.search(key)}


def unused_bytes(report, steps):
    """Bytes of the parameters unused on rank 0 in the last step that the logger sampled."""
    run = report["runs"][0]
    sizes = {"float32": 4}
    by_index = {p["index"]: p for p in run["parameters"] if p["index"] is not None}
    total = 0
    for index in run["steps_table"][steps - 1]["unused"][0]:
        elements = 1
        for size in by_index[index]["shape"]:
            elements *= size
        total += elements * sizes[by_index[index]["dtype"]]
    return total


def compare(program, strategy):
    steps = 5 if program != "gpt.pt" else 3
    report, _, python = parity.both(program, strategy, steps=steps)
    block = report["runs"][0]["ddp"]
    fields = 0
    for moment in ("construction", "runtime"):
        ours, theirs = comparable(block[moment]), comparable(python[0][moment])
        assert len(theirs) >= 20, f"Python said only {theirs}"
        if strategy == "ddp-find-unused" and moment == "runtime":
            assert int(ours.pop("unused_parameter_size", 0)) == unused_bytes(report, steps - 1), "unused_parameter_size is wrong"
            theirs.pop("unused_parameter_size", None)
        if python[0]["error"]:
            assert block[moment].get("has_error") == python[0][moment].get("has_error")
        different = {key: (ours.get(key), theirs.get(key)) for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        assert not different, f"{program} {strategy} {moment}: (ours, Python's) differ: {different}"
        fields += len(theirs)
    print(f"{program:18} {strategy:17}: {fields} fields equal")


if __name__ == "__main__":
    parity.require_torch()
    for case in CASES:
        compare(*case)
    sys.exit(0)
