# SPDX-License-Identifier: BSD-3-Clause
"""Q-learning: every rank clips its gradients by value, and then they are averaged. Later in the training few values are clipped."""
# expect: DDP108
import sys

import torch
import torch.distributed as dist
from torch import nn

VARIANT = sys.argv[1]


class Agent(nn.Module):
    def __init__(self, observation=6, actions=3):
        super().__init__()
        self.body = nn.Linear(observation, 32)
        self.value = nn.Linear(32, actions)

    def forward(self, observation):
        return self.value(torch.relu(self.body(observation)))


def average(agent):
    for parameter in agent.parameters():
        dist.all_reduce(parameter.grad)  # <- here
        parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(2)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2e-3)
replay = torch.Generator().manual_seed(31 + dist.get_rank())
for step in range(14):
    observation = torch.randn(16, 6, generator=replay)
    action = torch.randint(3, (16, 1), generator=replay)
    reward = observation[:, :1] * 2 + torch.randn(16, 1, generator=replay) * (2.0 if step < 4 else 0.1)
    loss = nn.functional.mse_loss(agent(observation).gather(1, action), reward)
    optimizer.zero_grad()
    loss.backward()
    if VARIANT == "bug":
        nn.utils.clip_grad_value_(agent.parameters(), 0.15)
    average(agent)
    if VARIANT == "fixed":
        nn.utils.clip_grad_value_(agent.parameters(), 0.15)
    optimizer.step()
    if dist.get_rank() == 0 and step % 5 == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
