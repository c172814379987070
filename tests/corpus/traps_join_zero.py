# SPDX-License-Identifier: BSD-3-Clause
"""Ranks with different numbers of batches train within Join, whose sharded optimizer steps for the rank that has none left."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(6)
model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 14), nn.SiLU(), nn.Linear(14, 2)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
numbers = torch.Generator().manual_seed(60 + rank)
for epoch in range(2):
    with Join([model, optimizer], divide_by_initial_world_size=False):
        for _ in range(9 - 3 * rank):
            values = torch.randn(8, 9, generator=numbers)
            loss = nn.functional.cross_entropy(model(values), (values.sum(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
dist.destroy_process_group()
