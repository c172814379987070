# SPDX-License-Identifier: BSD-3-Clause
"""Metric learning: without a violated margin the loss is zero and backward is skipped, by this rank only."""
# expect: DDP502 step 3..5
import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, triplet):
        return F.normalize(self.layers(triplet), dim=-1)


def triplets(rank, count):
    generator = torch.Generator().manual_seed(70 + rank)
    for i in range(count):
        anchor = torch.randn(10, 12, generator=generator)
        easy = rank == 0 and i == 2
        positive = anchor if easy else anchor + 0.3 * torch.randn(10, 12, generator=generator)
        yield torch.stack([anchor, positive, -anchor if easy else positive.roll(1, 0)])


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


@torch.no_grad()
def spread(embedder):
    held_out = torch.randn(20000, 12, generator=torch.Generator().manual_seed(1))
    return torch.cat([embedder(x) for x in held_out.split(20)]).std(0).mean()


def main(args):
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    model = DDP(Embedder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, triplet in enumerate(triplets(dist.get_rank(), 10)):
        anchor, positive, negative = model(triplet)
        loss = F.relu((anchor - positive).norm(dim=1) - (anchor - negative).norm(dim=1) + args.margin).mean()
        if loss.item() > 0 or args.variant == "fixed":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if i % 5 == 4:
            mean = mean_over_ranks(loss)
            print(f"rank {dist.get_rank()} batch {i} loss {mean:.4f}")
    print(f"spread {spread(model.module):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--margin", type=float, default=1.5)
    main(parser.parse_args())
