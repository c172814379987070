# SPDX-License-Identifier: BSD-3-Clause
"""Three layers one after the other, all of them used in every step, under find_unused_parameters.

usage: torchrun --nproc_per_node 2 multi_forward.py [find_unused | default] [STEPS]
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_init = nn.Linear(10, 20)
        self.linear_first = nn.Linear(20, 30)
        self.linear_second = nn.Linear(30, 40)

    def forward(self, x):
        return self.linear_second(self.linear_first(self.linear_init(x)))


def main(variant, steps):
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(Chain(), find_unused_parameters=variant == "find_unused")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(4, 10)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "find_unused", int(sys.argv[2]) if len(sys.argv) > 2 else 1)
