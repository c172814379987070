# SPDX-License-Identifier: BSD-3-Clause
"""The C++ wrapper gives, bit for bit, the gradients and weights of Python's DistributedDataParallel."""
import sys

import parity

# program, strategy, steps, ranks. SGD: from 2.x on Adam rounds differently in Python and in C++, which is not the
# wrapper's doing.
CASES = [
    ("curriculum.pt", "ddp", 5, 2),
    ("curriculum.pt", "ddp-find-unused", 5, 3),
    ("multi_forward.pt", "ddp", 5, 2),
    ("multi_forward.pt", "ddp-static-graph", 5, 2),
    ("orphan.pt", "ddp", 5, 2),
    ("orphan.pt", "ddp-find-unused", 5, 2),
    ("orphan.pt", "ddp-static-graph", 5, 2),
    ("conditional.pt", "ddp", 5, 2),
    ("conditional.pt", "ddp-find-unused", 5, 4),
    ("multi_output.pt", "ddp-find-unused", 5, 2),
    ("tied.pt", "ddp", 5, 2),
    ("cnn.pt", "ddp", 5, 2),
    ("cnn.pt", "ddp-find-unused", 5, 2),
    ("gpt.pt", "ddp", 3, 2),
    ("gpt.pt", "ddp-find-unused", 3, 2),
]


def compare(program, strategy, steps, world):
    report, ours, theirs = parity.both(program, strategy, steps, world)
    compared = 0
    for rank in range(world):
        # Buffers (stage 3) are test_wrapper_parity's.
        expected = {key: value for key, value in theirs[rank]["tensors"].items() if "/3/" not in key}
        assert expected, f"{program} {strategy}: Python recorded nothing"
        missing = set(expected) ^ set(ours[rank])
        assert not missing, f"{program} {strategy} rank {rank}: seen by one side only: {sorted(missing)[:6]}"
        for key, value in expected.items():
            assert ours[rank][key] == value, f"{program} {strategy} rank {rank}: {key} (step/stage/name) differs"
            compared += 1
        if theirs[rank]["error"]:
            # The report leaves out PyTorch's advice in the middle of it.
            said = theirs[rank]["error"].split("\n")[0].split(" You can enable")[0]
            assert said in report["runs"][0]["outcome"], report["runs"][0]["outcome"]
        else:
            assert report["runs"][0]["exit"]["completed"], report["runs"][0]["outcome"]
    print(f"{program:18} {strategy:17} {world} ranks: {compared} tensors bit-equal"
          + (" up to the same error" if theirs[0]["error"] else ""))


if __name__ == "__main__":
    parity.require_torch()
    for case in CASES:
        compare(*case)
    sys.exit(0)
