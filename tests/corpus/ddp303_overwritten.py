# SPDX-License-Identifier: BSD-3-Clause
"""Prototypes of classes follow the features of the rank's batch, and DDP overwrites them by rank 0's before each forward."""
# expect: DDP303 ranks 0 1 step 1 parameters prototypes total
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.parallel import DistributedDataParallel


class Prototypes(nn.Module):
    def __init__(self, classes=5, width=12, keep=0.8):
        super().__init__()
        self.keep, self.classes = keep, classes
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, width))
        self.register_buffer("prototypes", torch.randn(classes, width))
        self.register_buffer("total", torch.ones(classes, 1))

    def follow(self, features, labels):
        members = one_hot(labels, self.classes).float()
        sums, counts = members.T @ features, members.sum(0).unsqueeze(1)
        if fixed:
            dist.all_reduce(sums)
            dist.all_reduce(counts)
        self.prototypes.mul_(self.total * self.keep).add_(sums)
        self.total.mul_(self.keep).add_(counts)
        self.prototypes.div_(self.total)

    def forward(self, x, labels):
        features = self.encoder(x)
        scores = -torch.cdist(features, self.prototypes.clone())
        with torch.no_grad():
            self.follow(features, labels)
        return scores


fixed = sys.argv[1] == "fixed"
dist.init_process_group("gloo")
torch.manual_seed(33)
model = DistributedDataParallel(Prototypes())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
data = torch.Generator().manual_seed(34 + dist.get_rank())
for _ in range(10):
    x = torch.randn(40, 10, generator=data)
    labels = x[:, :5].argmax(1)
    loss = cross_entropy(model(x, labels), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
