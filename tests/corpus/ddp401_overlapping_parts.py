# SPDX-License-Identifier: BSD-3-Clause
"""A preview draws from the global generator on rank 0 only, which the shuffling of later epochs depends on: the halves that ranks take overlap."""
# expect: DDP401 ranks 0 1 step 6
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 8


class Halves:
    def __init__(self, signals, rank, ranks):
        self.signals, self.rank, self.ranks = signals, rank, ranks

    def __iter__(self):
        order = torch.randperm(len(self.signals))[self.rank::self.ranks]
        return (self.signals[part] for part in order.split(BATCH))


def preview(model, generator):
    with torch.no_grad():
        noise = torch.randn(2, 18, generator=generator)
        print(model.module(noise).std().item())


def main(mode):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    signals = torch.cumsum(torch.randn(80, 18), 1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(18, 6), nn.Tanh(), nn.Linear(6, 18)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    data = Halves(signals, rank, dist.get_world_size())
    for _ in range(3):
        for batch in data:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch), batch).backward()
            optimizer.step()
        if rank == 0:
            preview(model, torch.Generator() if mode == "fixed" else torch.default_generator)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
