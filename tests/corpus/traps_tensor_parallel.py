# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism by hand: each rank has its own hidden units, and all ranks see the same batch. The scale of the hidden units begins alike on all ranks,
and is split as they are."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HIDDEN, CLASSES = 12, 32, 4


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight


class SplitMLP(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.scale = Scale(HIDDEN // world)
        self.rows = nn.Linear(WIDTH, HIDDEN // world)
        self.columns = nn.Linear(HIDDEN // world, WIDTH, bias=False)
        own = torch.Generator().manual_seed(50 + rank)
        for layer in (self.rows, self.columns):
            layer.weight.data.normal_(0, 0.2, generator=own)

    def forward(self, x):
        return x + Leave.apply(self.columns(self.scale(torch.tanh(self.rows(Enter.apply(x))))))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, WIDTH), SplitMLP(rank, world), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(3)
    for step in range(10):
        x = torch.randn(16, 6, generator=data)
        loss = F.cross_entropy(model(x), x[:, :CLASSES].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
