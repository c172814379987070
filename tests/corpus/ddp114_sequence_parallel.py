# SPDX-License-Identifier: BSD-3-Clause
"""Sequence parallel by hand, as Megatron-LM has it: gradients of norms are summed over the ranks where they are marked, and the last norm is not."""
# expect: DDP114 ranks 0 1 step 1 parameters final_norm.*
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

WIDTH = 12


class Gather(torch.autograd.Function):
    """The whole sequence from its parts; of its gradient, which is complete on each rank, a part."""

    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]


class GatherForShards(Gather):
    """The same where each rank has the gradient of its own columns only."""

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous()
        dist.all_reduce(total)
        return Gather.backward(ctx, total)


class Scatter(torch.autograd.Function):
    """A part of the sum over ranks; backwards the gradients of all parts."""

    @staticmethod
    def forward(ctx, share):
        total = share.clone()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]

    @staticmethod
    def backward(ctx, gradient):
        return Gather.forward(ctx, gradient)


class Model(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.norm, self.final_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH // world, bias=False)
        self.down = nn.Linear(2 * WIDTH // world, WIDTH, bias=False)
        own = torch.Generator().manual_seed(40 + rank)
        for layer in (self.up, self.down):
            layer.weight.data.normal_(0, 0.2, generator=own)

    def forward(self, part):
        whole = GatherForShards.apply(self.norm(part))
        part = part + Scatter.apply(self.down(torch.tanh(self.up(whole))))
        return Gather.apply(self.final_norm(part))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Model(rank, world)
    marked = [model.norm] if sys.argv[1] == "bug" else [model.norm, model.final_norm]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(8)
    for _ in range(8):
        whole = torch.randn(4, 6, WIDTH, generator=batches)
        output = model(whole.chunk(world, dim=1)[rank])
        loss = (output - whole.roll(1, 1)).square().mean()  # of the whole sequence, on every rank
        optimizer.zero_grad()
        loss.backward()
        for norm in marked:
            for parameter in norm.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
