# SPDX-License-Identifier: BSD-3-Clause
"""Tensor-parallel layers whose replicated input gets no all-reduced gradient in backward: all that is before the last of them trains on shares."""
# expect: DDP114 ranks 0 1 step 1 parameters 0.* 1.norm.* 1.bias 2.norm.*
import sys

import torch
import torch.distributed as dist
import torch.nn as nn


class ToParts(torch.autograd.Function):
    reduces = True

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        if ToParts.reduces:
            grad = grad.contiguous()
            dist.all_reduce(grad)
        return grad


class FromParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        part = 4 * width // dist.get_world_size()
        own = torch.Generator().manual_seed(7 + dist.get_rank())
        self.norm = nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(part, width, generator=own) * 0.1)
        self.down = nn.Parameter(torch.randn(width, part, generator=own) * 0.1)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        h = ToParts.apply(self.norm(x))
        return x + FromParts.apply(torch.relu(h @ self.up.t()) @ self.down.t()) + self.bias


def main(variant):
    dist.init_process_group("gloo")
    ToParts.reduces = variant == "fixed"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(3)
    for _ in range(12):
        x = torch.randn(8, 8, generator=data)
        optimizer.zero_grad()
        (model(x) - x[:, :4]).pow(2).mean().backward()
        optimizer.step()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
