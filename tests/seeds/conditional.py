# SPDX-License-Identifier: BSD-3-Clause
"""A model with two branches, of which odd ranks take one and even ranks the other.

usage: torchrun --nproc_per_node 2 conditional.py [default | find_unused] [STEPS]
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(10, 20)
        self.linear2 = nn.Linear(20, 30)
        self.linear3 = nn.Linear(20, 30)

    def forward(self, x, second):
        branch = self.linear2 if second else self.linear3
        return branch(self.linear1(x))


def main(variant, steps):
    dist.init_process_group("gloo")
    odd = dist.get_rank() % 2 == 1
    ddp = DistributedDataParallel(Branching(), find_unused_parameters=variant == "find_unused")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(4, 10), odd).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "default", int(sys.argv[2]) if len(sys.argv) > 2 else 1)
