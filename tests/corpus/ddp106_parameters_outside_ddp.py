# SPDX-License-Identifier: BSD-3-Clause
"""Losses of several tasks weighted by learned uncertainties: these are in the optimizer, and in no wrapper."""
# expect: DDP106 step 1 parameters *log_variance
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(15, 32), nn.ReLU())
        self.depth = nn.Linear(32, 1)
        self.label = nn.Linear(32, 4)

    def forward(self, x):
        features = self.trunk(x)
        return self.depth(features), self.label(features)


class UncertaintyWeighting(nn.Module):
    """Kendall, Gal, Cipolla 2018: a log variance for each task."""

    def __init__(self, tasks):
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(tasks))

    def forward(self, losses):
        return (torch.stack(losses) * torch.exp(-self.log_variance) + self.log_variance).sum()


def train(variant, steps=10):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    model = DDP(MultiTask())
    criterion = UncertaintyWeighting(tasks=2)
    if variant == "fixed":
        criterion = DDP(criterion)
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(24, 15, generator=generator)
        depth, label = model(x)
        loss = criterion([
            nn.functional.l1_loss(depth, x.abs().mean(1, keepdim=True)),
            nn.functional.cross_entropy(label, x[:, :4].argmax(1)),
        ])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1])
