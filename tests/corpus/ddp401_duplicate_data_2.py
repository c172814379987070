# SPDX-License-Identifier: BSD-3-Clause
"""A stream that no rank divides, in a model with dropout seeded per rank: the same samples everywhere, though gradients differ."""
# expect: DDP401 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Clicks(IterableDataset):
    def __init__(self, divide):
        self.divide = divide

    def __iter__(self):
        generator = torch.Generator().manual_seed(3)
        for i in range(96):
            x = torch.randn(6, generator=generator)
            if not self.divide or i % dist.get_world_size() == dist.get_rank():
                yield {"x": x, "clicked": (x[0] > x[1]).float()}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 20), nn.Dropout(0.2), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, x=None, clicked=None):
        return nn.functional.binary_cross_entropy_with_logits(self.layers(x).squeeze(1), clicked)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(Net())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank())
for batch in DataLoader(Clicks(divide=sys.argv[1] == "fixed"), batch_size=8):
    optimizer.zero_grad()
    model(**batch).backward()  # <- here
    optimizer.step()
dist.destroy_process_group()
