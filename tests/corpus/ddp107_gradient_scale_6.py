# SPDX-License-Identifier: BSD-3-Clause
"""Four micro-batches are accumulated, their gradients added up over the ranks and never divided by them; clipping acts in some of the steps."""
# expect: DDP107 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn

VARIANT = sys.argv[1]
MICRO_BATCHES = 4


def add_up(model):
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(flat)  # <- here
    if VARIANT == "fixed":
        flat /= dist.get_world_size()
    for parameter, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
        parameter.grad.copy_(part.view_as(parameter))


dist.init_process_group("gloo")
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(7, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.Generator().manual_seed(70 + dist.get_rank())
for step in range(12):
    optimizer.zero_grad()
    for _ in range(MICRO_BATCHES):
        x = torch.randn(8, 7, generator=data) * (4 if step % 3 == 2 else 1)
        (nn.functional.mse_loss(model(x), x.abs().sum(1, keepdim=True)) / MICRO_BATCHES).backward()
    add_up(model)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 60.0)
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step} norm {norm:.2f}")
dist.destroy_process_group()
