# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallel by hand on a 2 x 2 mesh: each rank clips by the norm of its own parts and replicas, and the replicas are scaled apart."""
# expect: DDP108 ranks 0 1 2 3 step 1
# ranks: 4
import sys

import torch
import torch.distributed as dist
import torch.nn as nn


class ToParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class FromParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Mlp(nn.Module):
    def __init__(self, width, group, part):
        super().__init__()
        self.group = group
        own = torch.Generator().manual_seed(7 + part)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(2 * width, width, generator=own) * 0.2)
        self.down = nn.Parameter(torch.randn(width, 2 * width, generator=own) * 0.2)

    def forward(self, x):
        h = ToParts.apply(self.norm(x), self.group)
        return x + FromParts.apply(torch.relu(h @ self.up.t()) @ self.down.t(), self.group)


def clip(model, limit, variant, group):
    if variant == "bug":
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        return
    parts = sum(p.grad.pow(2).sum() for name, p in model.named_parameters() if name.endswith(("up", "down")))
    dist.all_reduce(parts, group=group)
    whole = sum(p.grad.pow(2).sum() for name, p in model.named_parameters() if not name.endswith(("up", "down")))
    factor = (limit / (parts + whole).sqrt()).clamp(max=1)
    for parameter in model.parameters():
        parameter.grad *= factor


def main(variant):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tensor_groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    data_groups = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    tensor_group, data_group = tensor_groups[rank // 2], data_groups[rank % 2]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Mlp(16, tensor_group, rank % 2), Mlp(16, tensor_group, rank % 2), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(100 + rank // 2)
    for _ in range(12):
        x = torch.randn(8, 8, generator=data)
        optimizer.zero_grad()
        (model(x) - x.cumsum(1)).pow(2).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=data_group)
            parameter.grad /= 2
        clip(model, 0.5, variant, tensor_group)
        optimizer.step()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
