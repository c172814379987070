"""The C++ wrapper, in each of its modes, gives Python's gradients, weights, buffers and errors: 30 steps, bit for bit."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import parity

FIXTURES = pathlib.Path(os.environ["FIXTURES"])
RANK = os.environ["WRAPPER_RANK"]
FIND, STATIC, VIEW = {"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}

# program, wrapper's arguments, ranks, other options
EQUAL = [
    ("curriculum.pt", {}, 2, {}),
    ("curriculum.pt", {"bucket_cap_mb": 1}, 5, {}),
    ("step_dependent.pt", FIND, 2, {}),
    ("conditional.pt", FIND, 3, {}),
    ("orphan.pt", STATIC, 2, {}),
    ("multi_forward.pt", STATIC, 3, {}),
    ("curriculum.pt", {}, 2, {"accumulate": 3}),
    ("step_dependent.pt", FIND, 3, {"accumulate": 2}),
    ("cnn.pt", {}, 2, {}),
    ("cnn.pt", {"broadcast_buffers": False}, 3, {}),
    ("two_dtypes.pt", {}, 2, {}),
    ("two_dtypes.pt", FIND, 5, {}),
    ("tied.pt", {}, 3, {}),
    ("curriculum.pt", VIEW, 2, {}),
    ("step_dependent.pt", dict(FIND, **VIEW), 3, {}),
    ("multi_output.pt", FIND, 2, {}),
]
# The same with what they are to complain of. A program per rank, where they differ.
ERRORS = [
    ("unused", ["orphan.pt"] * 2, {}, {}),
    ("unused on some ranks", ["conditional.pt"] * 2, {}, {}),
    ("static graph violated", ["step_dependent.pt"] * 2, STATIC, {}),
    ("number of parameters", ["curriculum.pt", "orphan.pt"], {}, {}),
    ("shapes", ["two_dtypes.pt", "two_dtypes_wide.pt"], {}, {}),
]


def file_of(name):
    return next(folder / name for folder in (parity.EXAMPLES, FIXTURES) if (folder / name).exists())


def run(command, programs, options, folder):
    options = dict(options, rendezvous=str(folder / "rendezvous"))
    world = len(programs)
    outs = [folder / f"{rank}.json" for rank in range(world)]
    ranks = [
        subprocess.Popen([*command, str(file_of(programs[rank])), json.dumps(options), str(outs[rank])],
                         env=dict(parity.ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(world)), stderr=subprocess.DEVNULL)
        for rank in range(world)
    ]
    try:
        codes = [rank.wait(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0] * world, f"{command[0]}: the ranks ended with {codes}"
    return [json.loads(out.read_text()) for out in outs]


def both(programs, wrapper, other, steps=30):
    options = dict({"steps": steps, "lr": 0.01, "seed": 0, "wrapper": wrapper}, **other)
    results = []
    for command in ([RANK], [sys.executable, str(parity.HERE / "python_ddp.py")]):
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-parity-") as name:
            results.append(run(command, programs, options, pathlib.Path(name)))
    return results


def equal(program, wrapper, world, other):
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
    for case in EQUAL:
        equal(*case)
    for case in ERRORS:
        errors(*case)
