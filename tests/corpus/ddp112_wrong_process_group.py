# SPDX-License-Identifier: BSD-3-Clause
"""Averaging in two stages, inside a node and then between nodes; the second stage was never written."""
# expect: DDP112 step 1
# ranks: 4
import sys

import torch
import torch.distributed as dist
from torch import nn

RANKS_PER_NODE = 2


class Groups:
    def __init__(self, rank, world_size):
        nodes = world_size // RANKS_PER_NODE
        for node in range(nodes):
            ranks = list(range(node * RANKS_PER_NODE, (node + 1) * RANKS_PER_NODE))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.inside = group
        for local in range(RANKS_PER_NODE):
            ranks = list(range(local, world_size, RANKS_PER_NODE))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.between = group


def average(model, groups, variant):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=groups.inside)  # <- here
        parameter.grad /= dist.get_world_size(groups.inside)
        if variant == "fixed":
            dist.all_reduce(parameter.grad, group=groups.between)
            parameter.grad /= dist.get_world_size(groups.between)


def main(variant):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = Groups(rank, dist.get_world_size())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(14, 20), nn.ReLU(), nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(6):
        x = torch.randn(16, 14, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        average(model, groups, variant)
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
