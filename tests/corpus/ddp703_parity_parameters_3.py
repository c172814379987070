# SPDX-License-Identifier: BSD-3-Clause
"""A sparse table outside of DDP is summed over the ranks, not averaged; one backward, an optimizer for the table and one for the rest."""
# expect: DDP703 ranks 0 1 parameters *items.weight
# command: parity
# needs: torch>=2
import os
import sys
from collections import namedtuple

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

Click = namedtuple("Click", "history target negatives")


class SessionRecommender(nn.Module):
    """Self-attentive pooling over the last items; the item table has sparse gradients."""

    def __init__(self, items=500, dim=16):
        super().__init__()
        self.items = nn.Embedding(items, dim, sparse=True)
        nn.init.normal_(self.items.weight, std=0.3)
        self.position = nn.Parameter(torch.zeros(8, dim))
        self.attend = nn.Linear(dim, 1)
        self.transform = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim))

    def forward(self, history, candidates):
        h = self.items(history) + self.position
        pooled = (self.attend(torch.tanh(h)).softmax(1) * h).sum(1)
        user = pooled + self.transform(pooled)
        return (self.items(candidates) @ user.unsqueeze(-1)).squeeze(-1)


class ClickStream:
    def __init__(self, rank, world, batch, items=500):
        self.rank, self.world, self.batch, self.items = rank, world, batch, items
        self.rng = np.random.default_rng(66)

    def __next__(self):
        n = self.batch
        genre = self.rng.integers(0, 10, size=(n, 1))
        history = genre * 50 + self.rng.integers(0, 50, size=(n, 8))
        target = genre[:, 0] * 50 + self.rng.integers(0, 50, size=n)
        negatives = self.rng.integers(0, self.items, size=(n, 6))
        mine = slice(self.rank * n // self.world, (self.rank + 1) * n // self.world)
        return Click(*(torch.from_numpy(a[mine]) for a in (history, target, negatives)))


class Engine:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(101)
        net = SessionRecommender()
        self.table = net.items.weight
        DDP._set_params_and_buffers_to_ignore_for_model(net, ["items.weight"])
        self.net = DDP(net)
        dense = [p for n, p in net.named_parameters() if n != "items.weight"]
        self.optimizers = [torch.optim.SparseAdam([self.table], lr=1e-2), torch.optim.Adam(dense, lr=3e-3)]
        self.stream = ClickStream(self.rank, self.world, batch=64)

    def reduce_table(self):
        grad = self.table.grad.coalesce()
        dist.all_reduce(grad)
        self.table.grad = grad if sys.argv[1] == "bug" else grad / self.world

    def step(self):
        click = next(self.stream)
        candidates = torch.cat([click.target.unsqueeze(1), click.negatives], 1)
        scores = self.net(click.history, candidates)
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        for opt in self.optimizers:
            opt.zero_grad()
        loss.backward()
        self.reduce_table()
        for opt in self.optimizers:
            opt.step()
        return loss.item()


if __name__ == "__main__":
    engine = Engine()
    history = [engine.step() for _ in range(int(os.environ.get("STEPS", "10")))]
    if engine.rank == 0:
        print("losses", " ".join(f"{v:.3f}" for v in history))
    dist.destroy_process_group()
