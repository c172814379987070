# SPDX-License-Identifier: BSD-3-Clause
"""Each cycle of self-training begins with a fresh head, put in place of the one that DDP knows."""
# expect: DDP105 step 5 parameters head.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS_PER_CYCLE = 4


class Student(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.encoder(x))


def fresh_head(cycle):
    torch.manual_seed(1000 + cycle)
    return nn.Linear(32, 5)


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train_cycle(model, optimizer, generator):
    for _ in range(STEPS_PER_CYCLE):
        x = torch.randn(20, 16, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
student = Student()
model = DDP(student)  # <- here
optimizer = make_optimizer(model)
generator = torch.Generator().manual_seed(9 + dist.get_rank())
for cycle in range(3):
    if cycle > 0:
        student.head = fresh_head(cycle)
        if sys.argv[1] == "fixed":
            model = DDP(student)
        optimizer = make_optimizer(model)
    last = train_cycle(model, optimizer, generator)
    print(f"rank {dist.get_rank()} cycle {cycle}: loss {last:.4f}")
dist.destroy_process_group()
