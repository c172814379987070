# SPDX-License-Identifier: BSD-3-Clause
"""Rank 0 is slow three times: a step of its own data loading, a checkpoint before a barrier, an evaluation before an all-reduce."""
import io
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SLOW = 8  # seconds


def save(model):
    torch.save(model.state_dict(), io.BytesIO())
    time.sleep(SLOW)  # the network's file system


def evaluate(model, x):
    model.eval()
    until = time.monotonic() + SLOW
    with torch.no_grad():
        while time.monotonic() < until:
            model(x)
    model.train()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(20 + rank)
    for step in range(12):
        if step == 2 and rank == 0:
            time.sleep(SLOW)  # a shard that is not in the cache yet
        x = torch.randn(16, 6, generator=generator)
        loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 5:
            if rank == 0:
                save(model.module)
            dist.barrier()
        if step == 8 and rank == 0:
            evaluate(model.module, x)
    total = loss.detach().clone()
    dist.all_reduce(total)
    print(f"rank {rank} loss {total.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
