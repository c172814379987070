# SPDX-License-Identifier: BSD-3-Clause
"""Every rank seeds its environment alike, so all of them collect the same episodes; actor and critic step one after the other."""
# An actor-critic loop whose authors seeded everything with args.seed, on every rank.
# expect: DDP401 ranks 0 1 step 1
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BUG = sys.argv[1] == "bug"


class Pendulum:
    """Observations (3,), one action in [-1, 1]."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.angle, self.speed = self.random.uniform(-numpy.pi, numpy.pi), 0.0

    def observe(self):
        return torch.tensor([numpy.cos(self.angle), numpy.sin(self.angle), self.speed], dtype=torch.float32)

    def act(self, action):
        self.speed += 0.5 * numpy.sin(self.angle) + 0.2 * float(action) + 0.05 * self.random.standard_normal()
        self.angle += 0.1 * self.speed
        return self.observe(), -self.angle**2 - 0.1 * self.speed**2


def mlp(outputs):
    return nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, outputs))


def rollout(env, actor, length):
    observations, rewards, actions = [], [], []
    for _ in range(length):
        observation = env.observe()
        with torch.no_grad():
            action = torch.tanh(actor(observation) + 0.1 * float(env.random.standard_normal()))
        _, reward = env.act(action)
        observations.append(observation), rewards.append(reward), actions.append(action)
    return torch.stack(observations), torch.tensor(rewards, dtype=torch.float32), torch.stack(actions)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    env = Pendulum(7 if BUG else 7 + dist.get_rank())
    actor, critic = DDP(mlp(1)), DDP(mlp(1))
    policy_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-3)
    value_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for _ in range(10):
        observations, rewards, actions = rollout(env, actor.module, 16)
        returns = rewards.flip(0).cumsum(0).flip(0) / 16
        values = critic(observations).squeeze(-1)
        advantage = (returns - values).detach()
        likelihood = -((torch.tanh(actor(observations)) - actions) ** 2).squeeze(-1)
        policy_loss = -(likelihood * advantage).mean()
        value_loss = nn.functional.mse_loss(values, returns)
        policy_optimizer.zero_grad()
        value_optimizer.zero_grad()
        policy_loss.backward()  # <- here
        value_loss.backward()
        policy_optimizer.step()
        value_optimizer.step()
    dist.destroy_process_group()


main()
