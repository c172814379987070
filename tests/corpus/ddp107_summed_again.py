# SPDX-License-Identifier: BSD-3-Clause
"""After each of three micro-batches the gradients are summed over the ranks, with what was summed before in them, and divided once, at the end."""
# expect: DDP107 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn


def reduce_all(parameters, world):
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)  # <- here
            if fixed:
                parameter.grad /= world


def micro_batches(rank):
    data = torch.Generator().manual_seed(90 + rank)
    while True:
        x = torch.randn(9, 11, generator=data)
        yield x, x.cos().sum(1, keepdim=True)


fixed = sys.argv[1] == "fixed"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(14)
net = nn.Sequential(nn.Linear(11, 18), nn.SiLU(), nn.Linear(18, 1))
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
source = micro_batches(rank)
for step in range(8):
    optimizer.zero_grad()
    for _ in range(3):
        x, y = next(source)
        loss = nn.functional.mse_loss(net(x), y) / 3
        loss.backward()
        reduce_all(net.parameters(), world)
    if not fixed:
        for parameter in net.parameters():
            parameter.grad /= world
    optimizer.step()
print(f"loss {3 * loss.item():.4f}")
dist.destroy_process_group()
