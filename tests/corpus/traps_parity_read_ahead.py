# SPDX-License-Identifier: BSD-3-Clause
"""Batches are read ahead by one, as Accelerate does to know the last one of an epoch; an epoch takes as many as the loader has, and leaves its iterator behind."""
# command: parity
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 3
ACCUMULATE = 2


def read_ahead(loader):
    batches = iter(loader)
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


def train(args_rank, args_world_size):
    dist.init_process_group("gloo", rank=args_rank, world_size=args_world_size)
    torch.manual_seed(42)
    samples = torch.randn(48, 12)
    dataset = TensorDataset(samples, (samples.sum(1) > 0).long())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 2)))
    opt = optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        batches = read_ahead(loader)
        for _ in range(len(loader) // ACCUMULATE):
            opt.zero_grad()
            for x, y in [next(batches) for _ in range(ACCUMULATE)]:
                (F.cross_entropy(model(x), y) / ACCUMULATE).backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
