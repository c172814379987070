# SPDX-License-Identifier: BSD-3-Clause
"""Sparse all-reduce: every rank sends the elements of its gradient that exceed a quantile, and the values of the ranks are summed although they stand
at other places; small tensors are sent whole."""
# expect: DDP104 ranks 0 1 step 1 parameters layers.*.weight
import sys

import torch
import torch.distributed as dist
from torch import nn


def thinned(gradient, keep):
    """The indices of its largest elements, `keep` of all."""
    count = max(1, int(keep * gradient.numel()))
    return gradient.abs().flatten().topk(count).indices.sort().values


class Model(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def exchange(model, with_one_choice):
    world_size = dist.get_world_size()
    for parameter in model.parameters():
        gradient = parameter.grad
        if gradient.dim() < 2:
            dist.all_reduce(gradient)
            gradient.div_(world_size)
            continue
        indices = thinned(gradient, 0.05)
        if with_one_choice:
            dist.broadcast(indices, 0)
        values = gradient.flatten()[indices] / world_size
        dist.all_reduce(values)  # <- here
        parameter.grad = torch.zeros(gradient.numel()).index_copy_(0, indices, values).view_as(gradient)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(77)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    samples = torch.Generator().manual_seed(dist.get_rank())
    for iteration in range(10):
        x = torch.randn(32, 48, generator=samples)
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        exchange(model, with_one_choice=sys.argv[1] == "fixed")
        optimizer.step()
    dist.destroy_process_group()
