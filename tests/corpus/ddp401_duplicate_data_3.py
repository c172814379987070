# SPDX-License-Identifier: BSD-3-Clause
"""DistributedSampler(seed=args.seed + rank): each rank shuffles differently, so parts of the data overlap and others are never seen."""
# expect: DDP401 ranks 0 1 step 1
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("variant")
parser.add_argument("--seed", type=int, default=40)
args = parser.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
seed = args.seed + rank if args.variant == "bug" else args.seed
generator = torch.Generator().manual_seed(0)
points = torch.randn(80, 5, generator=generator)
dataset = TensorDataset(points, points.norm(dim=1, keepdim=True))
sampler = DistributedSampler(dataset, seed=seed)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)
torch.manual_seed(args.seed)
model = DDP(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:  # <- here
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
