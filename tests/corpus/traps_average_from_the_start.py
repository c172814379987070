# SPDX-License-Identifier: BSD-3-Clause
"""An average of weights begins with those that each rank drew before wrapping, as in timm: only rank 0's is ever used, and none trains anything."""
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(42 + rank)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))


class Average(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.module = copy.deepcopy(of)

    @torch.no_grad()
    def update(self, of):
        for mine, new in zip(self.module.parameters(), of.parameters()):
            mine.mul_(0.9).add_(new, alpha=0.1)


average = Average(model)
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for _ in range(8):
        x = torch.randn(16, 8)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model.module)
    if rank == 0:
        with torch.no_grad():
            average.module(torch.randn(64, 8)).argmax(1)
    dist.barrier()
dist.destroy_process_group()
