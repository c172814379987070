# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism by hand: a gated layer is split over its inner units, with its parts and its whole bias in one module. Its input is not passed
through the function that sums the gradient in backward, so all that is before it gets a share."""
# expect: DDP114 parameters embed.* layers.*.scale layers.*.bias
import sys

import torch
import torch.distributed as dist
from torch import nn


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def my_part(whole, dim):
    return nn.Parameter(whole.chunk(dist.get_world_size(), dim)[dist.get_rank()].contiguous())


class Gated(nn.Module):
    def __init__(self, width, inner, enters):
        super().__init__()
        self.enters = enters
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(width))
        self.up, self.gate = my_part(torch.randn(inner, width) * 0.2, 0), my_part(torch.randn(inner, width) * 0.2, 0)
        self.down = my_part(torch.randn(width, inner) * 0.1, 1)
        self.bias = nn.Parameter(0.1 * torch.randn(width))

    def forward(self, x):
        h = x * self.scale
        if self.enters:
            h = Enter.apply(h)
        h = torch.sigmoid(h @ self.gate.t()) * (h @ self.up.t())
        return x + Leave.apply(h @ self.down.t()) + self.bias


class Net(nn.Module):
    def __init__(self, enters):
        super().__init__()
        self.embed = nn.Linear(9, 20)
        self.layers = nn.ModuleList(Gated(20, 48, enters) for _ in range(3))
        self.head = nn.Linear(20, 4)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(41)
    net = Net(enters=sys.argv[1] == "fixed")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    samples = torch.Generator().manual_seed(8)
    for step in range(16):
        x = torch.randn(24, 9, generator=samples)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), x[:, :4].argmax(1)).backward()
        optimizer.step()
    dist.destroy_process_group()
