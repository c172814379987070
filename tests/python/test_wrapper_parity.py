# SPDX-License-Identifier: BSD-3-Clause
"""The C++ wrapper, in each of its modes, gives Python's gradients, weights, buffers and errors: 30 steps, bit for bit."""
import os
import pathlib
import tempfile

import parity

FIXTURES = pathlib.Path(os.environ["FIXTURES"])
RANKS = (parity.Ranks(os.environ["WRAPPER_RANK"]), parity.PYTHON_RANKS)
FIND, STATIC, VIEW = {"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}

# Each mode with 2, 3 and 5 ranks: program, wrapper's arguments, other options.
MODES = [
    ("curriculum.pt", {}, {}),
    ("step_dependent.pt", FIND, {}),
    ("multi_forward.pt", STATIC, {}),
    ("curriculum.pt", {}, {"accumulate": 3}),
    ("cnn.pt", {}, {}),  # buffers of its BatchNorm
    ("two_dtypes.pt", {}, {}),
    ("tied.pt", {}, {}),
    ("curriculum.pt", VIEW, {}),
]
# Two at once, and what else there is.
ALSO = [
    ("curriculum.pt", {"bucket_cap_mb": 1}, {}),
    ("conditional.pt", FIND, {}),
    ("orphan.pt", STATIC, {}),
    ("step_dependent.pt", FIND, {"accumulate": 2}),
    ("cnn.pt", {"broadcast_buffers": False}, {}),
    ("two_dtypes.pt", FIND, {}),
    ("step_dependent.pt", dict(FIND, **VIEW), {}),
    ("multi_output.pt", FIND, {}),
]
# The same with what they are to complain of. A program per rank, where they differ.
ERRORS = [
    ("unused", ["orphan.pt"] * 2, {}, {}),
    ("unused on some ranks", ["conditional.pt"] * 2, {}, {}),
    ("static graph violated", ["step_dependent.pt"] * 2, STATIC, {}),
    ("ready twice", ["orphan.pt"] * 2, FIND, {"beside": "orphan.weight"}),
    ("number of parameters", ["curriculum.pt", "orphan.pt"], {}, {}),
    ("shapes", ["two_dtypes.pt", "two_dtypes_wide.pt"], {}, {}),
]


def file_of(name):
    return next(folder / name for folder in (parity.EXAMPLES, FIXTURES) if (folder / name).exists())


def both(programs, wrapper, other, steps=30):
    options = dict({"steps": steps, "lr": 0.01, "seed": 0, "wrapper": wrapper}, **other)
    results = []
    for ranks in RANKS:
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-parity-") as name:
            results.append(ranks.run([file_of(program) for program in programs], options, pathlib.Path(name)))
    return results


def equal(program, wrapper, other, world):
    ours, theirs = both([program] * world, wrapper, other)
    title = f"{program} {wrapper} {other} {world} ranks"
    for rank in range(world):
        assert theirs[rank]["error"] is None and ours[rank]["error"] is None, (title, ours[rank]["error"], theirs[rank]["error"])
        expected = theirs[rank]["tensors"]
        assert expected and set(expected) == set(ours[rank]["tensors"]), f"{title}: other tensors: {set(expected) ^ set(ours[rank]['tensors'])}"
        apart = [key for key in expected if ours[rank]["tensors"][key] != expected[key]]
        assert not apart, f"{title}: rank {rank} differs at {apart[:5]} (step/stage/name)"
    print(f"{title}: {world * len(expected)} tensors bit-equal")


def said(error):
    """Up to where texts name what differs in how a process was started: addresses, and Python's names of parameters."""
    return error.split("\n")[0].split(" You can enable")[0].split(" Parameter at index")[0] if error else None


def errors(title, programs, wrapper, other):
    ours, theirs = both(programs, wrapper, other, steps=6)
    told = [said(their["error"]) for their in theirs]
    assert any(told), f"{title}: Python did not complain"
    for rank, text in enumerate(told):
        mine = said(ours[rank]["error"])
        # A rank that only loses its peer says so in many ways.
        if text and "Connection" not in text and "closed" not in text.lower():
            assert mine == text, f"{title}, rank {rank}:\n  here:   {mine}\n  Python: {text}"
        assert set(ours[rank]["tensors"]) == set(theirs[rank]["tensors"]), f"{title}, rank {rank}: not in the same step"
    print(f"{title}: the same words: {next(filter(None, told))[:80]}")


if __name__ == "__main__":
    parity.require_torch()
    for world in (2, 3, 5):
        for case in MODES:
            equal(*case, world)
    for case in ALSO:
        equal(*case, 3)
    for case in ERRORS:
        errors(*case)
