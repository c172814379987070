# SPDX-License-Identifier: BSD-3-Clause
"""The main process alone clips the gradients, because it is the one that logs the norm."""
# expect: DDP102 step 4
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VARIANT = sys.argv[1]
MAX_NORM = 1.0


class Forecaster(nn.Module):
    def __init__(self, window=12, width=40):
        super().__init__()
        self.encode = nn.Linear(window, width)
        self.mix = nn.Linear(width, width)
        self.decode = nn.Linear(width, 1)

    def forward(self, series):
        hidden = torch.tanh(self.encode(series))
        return self.decode(hidden + torch.tanh(self.mix(hidden)))


def batches(rank, count):
    generator = torch.Generator().manual_seed(40 + rank)
    for i in range(count):
        series = torch.randn(32, 13, generator=generator).cumsum(1) * 0.1
        if i >= 3:
            series = series * 8  # a volatile market
        yield series[:, :12], series[:, 12:]


dist.init_process_group("gloo")
is_main = dist.get_rank() == 0
torch.manual_seed(7)
model = DDP(Forecaster())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step, (past, future) in enumerate(batches(dist.get_rank(), 10)):
    optimizer.zero_grad()
    loss = (model(past) - future).pow(2).mean()
    loss.backward()
    if is_main or VARIANT == "fixed":
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        if is_main and step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f} gradient norm {norm:.3f}")
    optimizer.step()  # <- here
dist.destroy_process_group()
