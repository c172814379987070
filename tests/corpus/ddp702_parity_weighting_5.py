# SPDX-License-Identifier: BSD-3-Clause
"""Policy gradients without a wrapper: a batch is split unevenly, each rank normalizes its importance weights, and the gradients are averaged by hand."""
# command: parity
# expect: DDP702 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
        self.action, self.value = nn.Linear(24, 3), nn.Linear(24, 1)

    def forward(self, observation):
        hidden = self.trunk(observation)
        return self.action(hidden).log_softmax(-1), self.value(hidden).squeeze(-1)


class Rollouts:
    def __init__(self, size=300):
        self.generator = torch.Generator().manual_seed(8)
        self.observations = torch.randn(size, 6, generator=self.generator)
        self.actions = torch.randint(3, (size,), generator=self.generator)
        self.returns = self.observations.sum(1) + self.actions
        self.weights = torch.rand(size, generator=self.generator) ** 3

    def sample(self, count):
        chosen = torch.randint(len(self.observations), (count,), generator=self.generator).sort().values
        return self.observations[chosen], self.actions[chosen], self.returns[chosen], self.weights[chosen]


def main(mode):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy, rollouts = Policy(), Rollouts()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=3e-3)
    for _ in range(7):
        observations, actions, returns, weights = (part.tensor_split(world_size)[rank] for part in rollouts.sample(31))
        logits, values = policy(observations)
        chosen = logits.gather(1, actions[:, None]).squeeze(1)
        advantages = (returns - values).detach()
        losses = -chosen * advantages + 0.5 * (returns - values) ** 2
        total = weights.sum()
        if mode == "fixed":
            dist.all_reduce(total)
            total /= world_size
        loss = (weights * losses).sum() / total
        optimizer.zero_grad()
        loss.backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
