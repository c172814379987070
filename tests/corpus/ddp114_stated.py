# SPDX-License-Identifier: BSD-3-Clause
"""Tensor and sequence parallel by hand, DistributedDataParallel along the other dimension: the norms see a part of the sequence, and nobody
reduces their gradients over the tensor-parallel ranks. That these hold replicas of the norms is stated."""
# expect: DDP114 ranks 0 1 2 3 step 1 parameters norm.*
# ranks: 4
# needs: torch>=2.6
import sys

import ddp_doctor
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

WIDTH = 12


class Gather(torch.autograd.Function):
    """The whole sequence from its parts; of its gradient, which each rank has for its own columns, the sum and of that a part."""

    @staticmethod
    def forward(ctx, part, group):
        ctx.group = group
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous()
        dist.all_reduce(total, group=ctx.group)
        return total.chunk(dist.get_world_size(ctx.group), dim=1)[dist.get_rank(ctx.group)], None


class Scatter(torch.autograd.Function):
    """A part of the sequence of the sum over ranks; backwards the parts' gradients."""

    @staticmethod
    def forward(ctx, share, group):
        ctx.group = group
        total = share.clone()
        dist.all_reduce(total, group=group)
        return total.chunk(dist.get_world_size(group), dim=1)[dist.get_rank(group)]

    @staticmethod
    def backward(ctx, gradient):
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, gradient.contiguous(), group=ctx.group)
        return torch.cat(parts, dim=1), None


class Block(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.norm = ddp_doctor.placement(nn.LayerNorm(WIDTH), {"tp": "replicate"})
        own = torch.Generator().manual_seed(9 + dist.get_rank(group))
        self.up = nn.Linear(WIDTH, 2 * WIDTH // dist.get_world_size(group), bias=False)
        self.down = nn.Linear(2 * WIDTH // dist.get_world_size(group), WIDTH, bias=False)
        for layer in (self.up, self.down):
            layer.weight.data.normal_(0, 0.2, generator=own)

    def forward(self, x):
        whole = Gather.apply(self.norm(x), self.group)
        return x + Scatter.apply(self.down(torch.tanh(self.up(whole))), self.group)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tp, dp = mesh.get_group("tp"), mesh.get_group("dp")
    block = Block(tp)
    model = nn.parallel.DistributedDataParallel(block, process_group=dp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(30 + dist.get_rank(dp))
    for _ in range(8):
        whole = torch.randn(4, 8, WIDTH, generator=batches)
        part, target = (tensor.chunk(2, dim=1)[dist.get_rank(tp)] for tensor in (whole, whole.roll(1, 1)))
        loss = F.mse_loss(model(part), target) / 2
        optimizer.zero_grad()
        loss.backward()
        if sys.argv[1] == "fixed":
            for parameter in block.norm.parameters():
                dist.all_reduce(parameter.grad, group=tp)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
