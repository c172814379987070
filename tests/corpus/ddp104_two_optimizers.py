# SPDX-License-Identifier: BSD-3-Clause
"""Actor and critic are two modules with an optimizer each; the critic steps first, and nobody averages its gradients."""
# expect: DDP104 step 1 parameters *Critic*
import sys

import torch
import torch.distributed as dist
from torch import nn


class Actor(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))


class Critic(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))


def average_gradients(module):
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)  # <- here
        parameter.grad /= dist.get_world_size()


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    actor, critic = Actor(), Critic()
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(70 + dist.get_rank())
    for _ in range(8):
        state = torch.randn(32, 6, generator=generator)
        reward = state[:, 0].sign()
        value = critic(state).squeeze(1)
        log_probability = torch.log_softmax(actor(state), 1)[:, 0]
        critic_optimizer.zero_grad()
        (value - reward).pow(2).mean().backward()
        if variant != "bug":
            average_gradients(critic)
        critic_optimizer.step()
        actor_optimizer.zero_grad()
        (-(log_probability * (reward - value.detach())).mean()).backward()
        average_gradients(actor)
        actor_optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
