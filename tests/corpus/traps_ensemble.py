# SPDX-License-Identifier: BSD-3-Clause
"""A deep ensemble in one job: ranks 0 and 1 train the first member, ranks 2 and 3 the second, which is wider."""
# ranks: 4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MEMBERS = [{"width": 20, "depth": 2, "lr": 0.1, "seed": 1}, {"width": 28, "depth": 3, "lr": 0.05, "seed": 2}]
RANKS_PER_MEMBER = 2


class Member(nn.Module):
    def __init__(self, width, depth, features=9, classes=3):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.out(x)


def member_of(rank):
    mine, group = rank // RANKS_PER_MEMBER, None
    for i in range(len(MEMBERS)):
        g = dist.new_group(list(range(i * RANKS_PER_MEMBER, (i + 1) * RANKS_PER_MEMBER)))
        if i == mine:
            group = g
    return mine, group


def batch(gen, n=24):
    x = torch.randn(n, 9, generator=gen)
    return x, (x[:, :3] + 0.5 * x[:, 3:6]).argmax(dim=1)


@torch.no_grad()
def ensemble_accuracy(model):
    x, y = batch(torch.Generator().manual_seed(0), 200)
    probs = model.module(x).softmax(dim=1) / dist.get_world_size()
    dist.all_reduce(probs)
    return (probs.argmax(1) == y).float().mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    index, group = member_of(rank)
    config = MEMBERS[index]
    torch.manual_seed(config["seed"])
    model = DDP(Member(config["width"], config["depth"]), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    gen = torch.Generator().manual_seed(50 + rank)
    for step in range(16):
        x, y = batch(gen)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 7:
            accuracy = ensemble_accuracy(model)
            if rank == 0:
                print(f"step {step} ensemble accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
