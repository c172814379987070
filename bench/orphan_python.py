# SPDX-License-Identifier: BSD-3-Clause
"""Investigates an unused parameter by hand, without ddp-doctor: the orphan program under torchrun, with one setting."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Orphan(nn.Module):
    def __init__(self):
        super().__init__()
        self.orphan = nn.Linear(32, 32)
        self.head = nn.Linear(32, 32)

    def forward(self, x):
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Orphan(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
for step in range(8):
    x, y = torch.randn(2, 2, 32, generator=generator)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
