# SPDX-License-Identifier: BSD-3-Clause
"""Running statistics in buffers; gradients are averaged by hand, and nobody averages the buffers."""
# expect: DDP303 step 1 parameters normalizer.*
import sys

import torch
import torch.distributed as dist
from torch import nn


class RunningNormalizer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("count", torch.tensor(1e-4))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("square", torch.ones(size))

    def forward(self, x):
        if self.training:
            self.update(x)
        return (x - self.mean) / (self.square - self.mean**2).clamp(min=1e-4).sqrt()

    @torch.no_grad()
    def update(self, x):
        sums = torch.cat([torch.tensor([float(len(x))]), x.sum(0), x.pow(2).sum(0)])
        if sys.argv[1] == "fixed":
            dist.all_reduce(sums)
        self.count += sums[0]
        self.mean += (sums[1:1 + len(self.mean)] - sums[0] * self.mean) / self.count
        self.square += (sums[1 + len(self.mean):] - sums[0] * self.square) / self.count


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.normalizer = RunningNormalizer(6)
        self.value = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1))

    def forward(self, observation):
        return self.value(self.normalizer(observation))


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
environment = torch.Generator().manual_seed(40 + dist.get_rank())
for step in range(10):
    observation = 3.0 + torch.randn(32, 6, generator=environment) * torch.arange(1.0, 7.0)
    returns = observation.sum(1, keepdim=True) / 10
    loss = nn.functional.mse_loss(agent(observation), returns)
    optimizer.zero_grad()
    loss.backward()
    average_gradients(agent)
    optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
