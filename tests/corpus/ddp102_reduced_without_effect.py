# SPDX-License-Identifier: BSD-3-Clause
"""Differentially private training: every rank adds noise of its own to the averaged gradients."""
# expect: DDP102 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn

VARIANT = sys.argv[1]


class PrivateTrainer:
    def __init__(self, noise=0.02):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(11)
        self.net = nn.Sequential(nn.Linear(9, 20), nn.Tanh(), nn.Linear(20, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.noise = noise
        self.generator = torch.Generator().manual_seed(900 + (self.rank if VARIANT == "bug" else 0))

    def average(self):
        for parameter in self.net.parameters():
            dist.all_reduce(parameter.grad)  # <- here
            parameter.grad /= self.world

    def privatize(self):
        for parameter in self.net.parameters():
            parameter.grad += self.noise * torch.randn(parameter.shape, generator=self.generator)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), x[:, :3].argmax(1))
        loss.backward()
        self.average()
        self.privatize()
        self.optimizer.step()
        return loss.item()


dist.init_process_group("gloo")
trainer = PrivateTrainer()
data = torch.Generator().manual_seed(trainer.rank)
for step in range(10):
    loss = trainer.step(torch.randn(24, 9, generator=data))
    if trainer.rank == 0 and step % 3 == 0:
        print(f"step {step} loss {loss:.4f}")
dist.destroy_process_group()
