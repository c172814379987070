# SPDX-License-Identifier: BSD-3-Clause
"""Where a rank has no sample of any task, its loss is a constant zero, from which no gradient comes."""
# expect: DDP202 step 5
import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TaskNet(nn.Module):
    def __init__(self, tasks=("caption", "answer")):
        super().__init__()
        self.shared = nn.Linear(10, 24)
        self.heads = nn.ModuleDict({task: nn.Linear(24, 2) for task in tasks})

    def forward(self, x):
        hidden = torch.relu(self.shared(x))
        return {task: head(hidden) for task, head in self.heads.items()}


def task_loss(outputs, task_of_sample, labels, connect):
    total = torch.zeros((), requires_grad=True)
    for index, logits in enumerate(outputs.values()):
        mine = task_of_sample == index
        if mine.any():
            total = total + nn.functional.cross_entropy(logits[mine], labels[mine])
        elif connect:
            total = total + 0.0 * logits.sum()
    return total


def batches(rank, count):
    generator = torch.Generator().manual_seed(31 + rank)
    for i in range(count):
        task_of_sample = torch.arange(16) % 2
        if rank == 1 and i == 4:
            task_of_sample.fill_(-1)  # neither captions nor answers in this shard
        x = torch.randn(16, 10, generator=generator)
        yield x, task_of_sample, (x.sum(1) > 0).long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    model = DDP(TaskNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, task_of_sample, labels in batches(dist.get_rank(), 9):
        loss = task_loss(model(x), task_of_sample, labels, connect=args.variant == "fixed")  # <- here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
