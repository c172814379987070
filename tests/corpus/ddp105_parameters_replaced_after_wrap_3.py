# SPDX-License-Identifier: BSD-3-Clause
"""Going back to the best weights puts a deep copy in the place of ddp.module, which the reducer never hooked."""
# expect: DDP105 step 7
import copy
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class GraphNet(nn.Module):
    def __init__(self, feats=6, dim=20, classes=3):
        super().__init__()
        self.encode = nn.Linear(feats, dim)
        self.message = nn.Linear(dim, dim)
        self.update = nn.Linear(2 * dim, dim)
        self.classify = nn.Linear(dim, classes)

    def forward(self, x, adj):
        h = torch.relu(self.encode(x))
        for _ in range(2):
            m = adj @ torch.relu(self.message(h))
            h = torch.relu(self.update(torch.cat([h, m], dim=-1)))
        return self.classify(h.mean(dim=1))


def graphs(gen, n=16, nodes=8):
    x = torch.randn(n, nodes, 6, generator=gen)
    adj = (torch.rand(n, nodes, nodes, generator=gen) < 0.3).float()
    adj = adj / adj.sum(-1, keepdim=True).clamp(min=1)
    return x, adj, (adj @ x)[..., :3].mean(1).argmax(1)


class CyclicTrainer:
    """Every cycle starts from the best weights so far, with half of the learning rate."""

    def __init__(self, rank, lr=0.02):
        torch.manual_seed(0)
        self.rank, self.lr = rank, lr
        self.model = DDP(GraphNet())
        self.gen = torch.Generator().manual_seed(rank)
        self.val = graphs(torch.Generator().manual_seed(500 + rank), n=32)
        self.best_loss, self.best = float("inf"), None
        self.make_optimizer()

    def make_optimizer(self):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)

    @torch.no_grad()
    def validate(self):
        x, adj, y = self.val
        loss = F.cross_entropy(self.model.module(x, adj), y)
        dist.all_reduce(loss)
        loss = loss.item() / dist.get_world_size()
        if loss < self.best_loss:
            self.best_loss, self.best = loss, copy.deepcopy(self.model.module)
        return loss

    def restart(self):
        if sys.argv[1] == "bug":
            self.model.module = copy.deepcopy(self.best)
        else:
            self.model.module.load_state_dict(self.best.state_dict())
        self.lr *= 0.5
        self.make_optimizer()

    def fit(self, cycles=4, steps=6):
        for cycle in range(cycles):
            self.model.train()
            for _ in range(steps):
                x, adj, y = graphs(self.gen)
                self.optimizer.zero_grad()
                F.cross_entropy(self.model(x, adj), y).backward()
                self.optimizer.step()
            loss = self.validate()
            if self.rank == 0:
                print(f"cycle {cycle} val {loss:.4f} best {self.best_loss:.4f}")
            self.restart()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    CyclicTrainer(dist.get_rank()).fit()
    dist.destroy_process_group()
