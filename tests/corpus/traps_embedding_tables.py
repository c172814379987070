# SPDX-License-Identifier: BSD-3-Clause
"""Each rank has embedding tables of its own, which one seed makes alike, and sends every rank the rows of that rank's samples; the rest is wrapped."""
# As recommenders do whose tables do not fit on one device.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS, DIM, BATCH = 20, 8, 16


class Deal(torch.autograd.Function):
    """From (samples of all ranks, one table) to (own samples, tables of all ranks), both flat by rank."""

    @staticmethod
    def forward(ctx, rows):
        dealt = torch.empty_like(rows)
        dist.all_to_all_single(dealt, rows.contiguous())
        return dealt

    @staticmethod
    def backward(ctx, gradient):
        returned = torch.empty_like(gradient)
        dist.all_to_all_single(returned, gradient.contiguous())
        return returned


class Recommender(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.emb = nn.EmbeddingBag(ROWS, DIM, mode="sum")  # this rank's
        self.top = DDP(nn.Sequential(nn.Linear(DIM * tables, 16), nn.ReLU(), nn.Linear(16, 1)))

    def forward(self, clicks, rank, world):
        rows = self.emb(clicks[:, rank])  # of the samples of all ranks
        mine = Deal.apply(rows).view(world, -1, DIM)
        return self.top(mine.transpose(0, 1).flatten(1)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model = Recommender(world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(5)
    for _ in range(12):
        clicks = torch.randint(ROWS, (BATCH * world, world, 3), generator=generator)
        bought = (clicks.sum((1, 2)) % 2).float()
        own = slice(rank * BATCH, (rank + 1) * BATCH)
        loss = nn.functional.binary_cross_entropy_with_logits(model(clicks, rank, world), bought[own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
