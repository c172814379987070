# SPDX-License-Identifier: BSD-3-Clause
"""Heads are built in the order in which this rank's files name their tasks: DDP pairs them by position."""
# expect: DDP306 ranks 1 parameters heads.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MANIFESTS = {  # rank: the tasks of its shard, as they come
    0: ["parity", "sign", "parity", "sign"],
    1: ["sign", "parity", "sign", "parity"],
}


class MultiTask(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(32, 2) for task in tasks})

    def forward(self, x):
        hidden = self.body(x)
        return {task: head(hidden) for task, head in self.heads.items()}


def labels(task, x):
    return (x.sum(1) > 0).long() if task == "sign" else (x > 0).sum(1) % 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tasks = list(dict.fromkeys(MANIFESTS[rank % 2]))
    if sys.argv[1] == "fixed":
        tasks.sort()
    torch.manual_seed(0)
    model = DDP(MultiTask(tasks))  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(8):
        x = torch.randn(24, 8, generator=generator)
        logits = model(x)
        loss = sum(nn.functional.cross_entropy(logits[task], labels(task, x)) for task in tasks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
