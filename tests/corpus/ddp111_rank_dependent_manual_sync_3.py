# SPDX-License-Identifier: BSD-3-Clause
"""Two-tower recommender; gradients are flattened in the order in which backward finishes them and averaged in one go."""
# expect: DDP111 step 1 parameters user_tower.* item_tower.*
import sys
from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

IDS = 120


class Tower(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.table = nn.Embedding(IDS, dim)
        self.fc1 = nn.Linear(dim, 24)
        self.fc2 = nn.Linear(24, dim)

    def forward(self, ids):
        return self.fc2(torch.relu(self.fc1(self.table(ids))))


class TwoTower(nn.Module):
    def __init__(self, items_first, dim=12):
        super().__init__()
        self.user_tower, self.item_tower = Tower(dim), Tower(dim)
        self.head = nn.Linear(dim, 1)
        self.items_first = items_first

    def forward(self, users, items):
        if self.items_first:
            v = self.item_tower(items)
            u = self.user_tower(users)
        else:
            u = self.user_tower(users)
            v = self.item_tower(items)
        return self.head(u * v).squeeze(-1)


class GradientBucket:
    def __init__(self, params):
        self.params, self.ready = list(params), []
        for p in self.params:
            p.register_hook(partial(self.mark_ready, p))

    def mark_ready(self, p, grad):
        self.ready.append(p)

    def average(self):
        params = self.ready if sys.argv[1] == "bug" else self.params
        flat = torch.cat([p.grad.flatten() for p in params])
        dist.all_reduce(flat)  # <- here
        flat /= dist.get_world_size()
        offset = 0
        for p in params:
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()
        self.ready.clear()


def clicks(rank, steps, n=48):
    gen = torch.Generator().manual_seed(31 + rank)
    for _ in range(steps):
        users, items = torch.randint(IDS, (2, n), generator=gen)
        yield users, items, ((users % 3) == (items % 3)).float()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    # odd ranks begin with the items, so that the two feature stores are not hit at the same time
    model = TwoTower(items_first=rank % 2 == 1)
    bucket = GradientBucket(model.parameters())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step, (users, items, clicked) in enumerate(clicks(rank, 15)):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(users, items), clicked)
        loss.backward()
        bucket.average()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
