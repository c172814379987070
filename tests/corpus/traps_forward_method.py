# SPDX-License-Identifier: BSD-3-Clause
"""Calls wrapper.forward(x) itself: no hook of the wrapper runs, and its reducer does."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(10 + dist.get_rank())
for step in range(30):
    x, y = torch.randn(4, 8, generator=data), torch.randn(4, 1, generator=data)
    with torch.no_grad():
        model.forward(x)
    loss = nn.functional.mse_loss(model.forward(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
