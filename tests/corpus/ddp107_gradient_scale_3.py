# SPDX-License-Identifier: BSD-3-Clause
"""Two-level gradient averaging: first inside a node, then between the nodes (torchrun --nnodes=2 --nproc_per_node=2)."""
# expect: DDP107 step 1
# ranks: 4
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SetTransformer(nn.Module):
    def __init__(self, dim=24, heads=2, classes=4):
        super().__init__()
        self.inp = nn.Linear(5, dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.inp(x)
        h = self.norm(h + self.attn(h, h, h, need_weights=False)[0])
        return self.out((h + self.ff(h)).mean(dim=1))


class HierarchicalAllReduce:
    def __init__(self, ranks_per_node):
        world, rank = dist.get_world_size(), dist.get_rank()
        self.ranks_per_node, self.nodes = ranks_per_node, world // ranks_per_node
        for node in range(self.nodes):
            ranks = list(range(node * ranks_per_node, (node + 1) * ranks_per_node))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.node_group = group
        for local in range(ranks_per_node):
            ranks = list(range(local, world, ranks_per_node))
            group = dist.new_group(ranks)
            if rank in ranks:
                self.cross_group = group

    def average_(self, tensor):
        dist.all_reduce(tensor, group=self.node_group)  # <- here
        dist.all_reduce(tensor, group=self.cross_group)
        tensor /= self.ranks_per_node if sys.argv[1] == "bug" else self.ranks_per_node * self.nodes


def synchronize(params, comm):
    flat = torch.cat([p.grad.flatten() for p in params])
    comm.average_(flat)
    for p, g in zip(params, flat.split([p.numel() for p in params])):
        p.grad = g.view_as(p).clone()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    comm = HierarchicalAllReduce(int(os.environ.get("RANKS_PER_NODE", 2)))
    torch.manual_seed(4)
    model = SetTransformer()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.05)
    gen = torch.Generator().manual_seed(60 + rank)
    for step in range(12):
        label = torch.randint(4, (12,), generator=gen)
        x = torch.randn(12, 7, 5, generator=gen) + F.one_hot(label, 5)[:, None].float()
        loss = F.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        synchronize(params, comm)
        optimizer.step()
        if rank == 0 and step % 4 == 3:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
