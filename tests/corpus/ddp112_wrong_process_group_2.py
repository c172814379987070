# SPDX-License-Identifier: BSD-3-Clause
"""The data-parallel groups are made with the wrong stride: each has one rank, and the wrapper averages over nothing."""
# expect: DDP112 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VARIANT = sys.argv[1]


def data_parallel_group(model_parallel=1):
    rank, world = dist.get_rank(), dist.get_world_size()
    stride = world if VARIANT == "bug" else model_parallel
    mine = None
    for first in range(stride):
        ranks = list(range(first, world, stride))
        group = dist.new_group(ranks)
        mine = group if rank in ranks else mine
    return mine


dist.init_process_group("gloo")
torch.manual_seed(4)
model = DDP(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 2)), process_group=data_parallel_group())  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(9):
    x = torch.randn(16, 5, generator=data)
    loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
