# SPDX-License-Identifier: BSD-3-Clause
"""Sparse gradients: a large embedding under SparseAdam, another under SGD, the dense rest under Adam."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

USERS, ITEMS = 500, 300


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, 12, sparse=True)
        self.items = nn.Embedding(ITEMS, 12, sparse=True)
        self.mix = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, users, items):
        return self.mix(torch.cat([self.users(users), self.items(items)], dim=1)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(41)
    model = DDP(Recommender())
    module = model.module
    optimizers = [
        torch.optim.SparseAdam(list(module.users.parameters()), lr=0.01),
        torch.optim.SGD(module.items.parameters(), lr=0.1),
        torch.optim.Adam(module.mix.parameters(), lr=0.005),
    ]
    generator = torch.Generator().manual_seed(900 + rank)
    losses = []
    for _ in range(16):
        users = torch.randint(0, USERS, (32,), generator=generator)
        items = torch.randint(0, ITEMS, (32,), generator=generator)
        clicked = ((users + items) % 2).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(users, items), clicked)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())

    assert module.users.weight.grad.is_sparse
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(losses).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
