"""The C++ wrapper gives, bit for bit, the gradients and weights of Python's DistributedDataParallel."""
import sys

import parity

# program, strategy, steps, optimizer, ranks
CASES = [
    ("curriculum.pt", "ddp", 5, "sgd", 2),
    ("curriculum.pt", "ddp-find-unused", 5, "adamw", 3),
    ("multi_forward.pt", "ddp", 5, "adam", 2),
    ("multi_forward.pt", "ddp-static-graph", 5, "sgd", 2),
    ("orphan.pt", "ddp", 5, "sgd", 2),
    ("orphan.pt", "ddp-find-unused", 5, "sgd", 2),
    ("orphan.pt", "ddp-static-graph", 5, "sgd", 2),
    ("conditional.pt", "ddp", 5, "sgd", 2),
    ("conditional.pt", "ddp-find-unused", 5, "sgd", 4),
    ("multi_output.pt", "ddp-find-unused", 5, "sgd", 2),
    ("tied.pt", "ddp", 5, "sgd", 2),
    ("cnn.pt", "ddp", 5, "sgd", 2),
    ("cnn.pt", "ddp-find-unused", 5, "sgd", 2),
    ("gpt.pt", "ddp", 3, "sgd", 2),
    ("gpt.pt", "ddp-find-unused", 3, "sgd", 2),
]


def compare(program, strategy, steps, optimizer, world):
    report, ours, theirs = parity.both(program, strategy, steps, optimizer, world)
    compared = 0
    for rank in range(world):
        expected = theirs[rank]["tensors"]
        assert expected, f"{program} {strategy}: Python recorded nothing"
        missing = set(expected) ^ set(ours[rank])
        assert not missing, f"{program} {strategy} rank {rank}: seen by one side only: {sorted(missing)[:6]}"
        for key, value in expected.items():
            assert ours[rank][key] == value, f"{program} {strategy} rank {rank}: {key} (step/stage/name) differs"
            compared += 1
        if theirs[rank]["error"]:
            assert theirs[rank]["error"].split("\n")[0] in report["runs"][0]["outcome"] + " ", report["runs"][0]["outcome"]
        else:
            assert report["runs"][0]["exit"]["completed"], report["runs"][0]["outcome"]
    print(f"{program:18} {strategy:17} {optimizer:6} {world} ranks: {compared} tensors bit-equal"
          + (" up to the same error" if theirs[0]["error"] else ""))


if __name__ == "__main__":
    parity.require_torch()
    for case in CASES:
        compare(*case)
    sys.exit(0)
