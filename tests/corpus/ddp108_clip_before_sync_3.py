# SPDX-License-Identifier: BSD-3-Clause
"""Every micro-batch runs under no_sync and gradients are averaged by hand, but after GradNorm-style clipping by the local norm."""
# expect: DDP108 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO_BATCHES, MAX_NORM = 2, 0.05


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(3, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, series):
        states, _ = self.encoder(series)
        return self.head(states[:, -1])


def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def clip(parameters):
    norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm()
    for parameter in parameters:
        parameter.grad *= min(1.0, MAX_NORM / (norm.item() + 1e-6))


dist.init_process_group("gloo")
torch.manual_seed(21)
model = DDP(Forecaster())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(77 + dist.get_rank())
order = [clip, average] if sys.argv[1] == "bug" else [average, clip]
for step in range(7):
    with model.no_sync():
        for _ in range(MICRO_BATCHES):
            series = torch.randn(6, 9, 3, generator=generator).cumsum(1)
            loss = (model(series[:, :-1]) - series[:, -1]).square().mean() / MICRO_BATCHES
            loss.backward()
    for change in order:
        change(list(model.parameters()))
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
