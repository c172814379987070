# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallel by hand: clip_grad_norm_ takes the norm of what a rank holds, and each rank scales its gradients by another one."""
# expect: DDP108
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

VARIANT = sys.argv[1]
MAX_NORM = 0.2


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        total = grad.clone()
        dist.all_reduce(total)
        return total


class Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad


class WideLayer(nn.Module):
    """Its units are divided among the ranks."""

    def __init__(self, width, units, rank, world):
        super().__init__()
        whole = nn.Linear(width, units), nn.Linear(units, width)
        self.into = nn.Parameter(whole[0].weight.detach().chunk(world)[rank].clone())
        self.out = nn.Parameter(whole[1].weight.detach().chunk(world, dim=1)[rank].clone())

    def forward(self, x):
        units = torch.relu(Spread.apply(x) @ self.into.t())
        return x + Collect.apply(units @ self.out.t())


class Regressor(nn.Module):
    def __init__(self, rank, world, width=10):
        super().__init__()
        self.first = nn.Linear(5, width)
        self.wide = nn.ModuleList(WideLayer(width, units, rank, world) for units in (36, 28))
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        x = self.first(x)
        for layer in self.wide:
            x = layer(x)
        return self.last(self.norm(x))


def clip(model):
    if VARIANT == "bug":
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        return
    squares = sum(p.grad.square().sum() for p in model.wide.parameters())
    dist.all_reduce(squares)
    squares += sum(p.grad.square().sum() for name, p in model.named_parameters() if not name.startswith("wide."))
    for p in model.parameters():
        p.grad *= (MAX_NORM / squares.sqrt()).clamp(max=1)


dist.init_process_group("gloo")
torch.manual_seed(9)
model = Regressor(dist.get_rank(), dist.get_world_size())
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
batches = torch.Generator().manual_seed(40)
for step in range(12):
    x = torch.randn(24, 5, generator=batches)
    loss = nn.functional.mse_loss(model(x), x.square().sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    clip(model)
    optimizer.step()
    if dist.get_rank() == 0 and step % 4 == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
