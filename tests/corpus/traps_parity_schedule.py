# SPDX-License-Identifier: BSD-3-Clause
"""A learning rate's schedule made for as many steps as the ranks take of a stream of samples: one process, whose stream is not shared, takes twice as many,
and the schedule raises. What was compared until then counts, and the rest is compared in another start."""
# command: parity
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

SAMPLES, BATCH = 128, 8


class Stream(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(4)
        for i in range(SAMPLES):
            x = torch.randn(6, generator=g)
            if i % dist.get_world_size() == dist.get_rank():
                yield x, x.prod()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=SAMPLES // BATCH // 2 + 1)
    for x, y in DataLoader(Stream(), batch_size=BATCH):
        loss = nn.functional.huber_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
