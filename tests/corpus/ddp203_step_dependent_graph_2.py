# SPDX-License-Identifier: BSD-3-Clause
"""Stochastic depth that skips whole blocks, the same ones on all ranks: right only with find_unused_parameters=True."""
# expect: DDP203 step 3 parameters blocks.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SKIP = sys.argv[1] == "bug"
DROPPED = [set(), set(), {1}, set(), {2}, {1, 2}, set(), {2}]  # by step, from a seed shared by the ranks


class StochasticDepth(nn.Module):
    def __init__(self, width=20, depth=3):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x, dropped):
        x = self.stem(x)
        for index, block in enumerate(self.blocks):
            if SKIP and index in dropped:
                continue
            x = x + float(index not in dropped) * block(x)
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(4)
model = DDP(StochasticDepth(), find_unused_parameters=SKIP)  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(dist.get_rank())
for dropped in DROPPED:
    x = torch.randn(24, 6, generator=generator)
    loss = nn.functional.mse_loss(model(x, dropped), x.max(1, keepdim=True).values)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
