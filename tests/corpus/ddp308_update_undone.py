# SPDX-License-Identifier: BSD-3-Clause
"""Ranks share out the optimizer's work in blocks, and broadcast by turns: a part of the updates is overwritten by the values of a rank that made none."""
# expect: DDP308 step 1 parameters stem.bias gate.bias norm.weight head.weight
import sys

import torch
import torch.distributed as dist
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 10)
        self.gate = nn.Linear(10, 10)
        self.norm = nn.LayerNorm(10)
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        return self.head(self.norm(x * torch.sigmoid(self.gate(x))))


class Shared:
    """Each rank's optimizer has a block of the parameters."""

    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.block = len(self.parameters) // dist.get_world_size()
        mine = [p for i, p in enumerate(self.parameters) if i // self.block == dist.get_rank()]
        self.optimizer = torch.optim.AdamW(mine, lr=lr)

    def step(self):
        for p in self.parameters:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        for i, p in enumerate(self.parameters):
            source = i // self.block if fixed else i % dist.get_world_size()
            dist.broadcast(p.data, src=source)  # <- here
        for p in self.parameters:
            p.grad = None


fixed = sys.argv[1] == "fixed"
dist.init_process_group("gloo")
torch.manual_seed(3)
model = Scorer()
shared = Shared(model.parameters(), 0.01)
torch.manual_seed(10 + dist.get_rank())
for _ in range(8):
    x = torch.randn(16, 6)
    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 1).long()).backward()
    shared.step()
dist.destroy_process_group()
