# SPDX-License-Identifier: BSD-3-Clause
"""Sharpness-aware minimization, the ascent with each rank's own gradient: w + e - e is not w to the last bit, and e is another on every rank."""
# expect: DDP305 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SharpnessAware:
    def __init__(self, optimizer, radius, keep):
        self.optimizer, self.radius, self.keep = optimizer, radius, keep
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.parameters]).norm()
        self.before = [p.clone() for p in self.parameters]
        self.moved = [p.grad * (self.radius / norm) for p in self.parameters]
        for p, moved in zip(self.parameters, self.moved):
            p.add_(moved)
        self.optimizer.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, moved, before in zip(self.parameters, self.moved, self.before):
            if self.keep:
                p.copy_(before)
            else:
                p.sub_(moved)
        self.optimizer.step()  # <- here
        self.optimizer.zero_grad()


def main(keep):
    dist.init_process_group("gloo")
    torch.manual_seed(64)
    net = nn.Sequential(nn.Linear(14, 40), nn.GELU(), nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 2))
    ddp = DDP(net)
    sharp = SharpnessAware(torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9), radius=0.05, keep=keep)
    shard = torch.Generator().manual_seed(700 + dist.get_rank())
    for _ in range(24):
        x = torch.randn(16, 14, generator=shard)
        y = (x.sum(1) > 0).long()
        with ddp.no_sync():
            nn.functional.cross_entropy(ddp(x), y).backward()
        sharp.ascend()
        nn.functional.cross_entropy(ddp(x), y).backward()
        sharp.descend()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(keep=sys.argv[1] == "fixed")
