# SPDX-License-Identifier: BSD-3-Clause
"""Actor-critic on a bandit: two heads and two optimizers behind one wrapper; each backward passes one head only."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP


class ActorCritic(nn.Module):
    def __init__(self, observations=6, actions=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observations, 32), nn.Tanh())
        self.actor = nn.Linear(32, actions)
        self.critic = nn.Linear(32, 1)

    def forward(self, observation, head):
        features = self.trunk(observation)
        if head == "critic":
            return self.critic(features.detach()).squeeze(1)
        return self.actor(features)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(29)
    model = DDP(ActorCritic(), find_unused_parameters=True)
    actor_optimizer = torch.optim.Adam([*model.module.trunk.parameters(), *model.module.actor.parameters()], lr=3e-3)
    critic_optimizer = torch.optim.SGD(model.module.critic.parameters(), lr=0.05)
    torch.manual_seed(500 + rank)
    history = []
    for update in range(16):
        observation = torch.randn(32, 6)

        with torch.no_grad():
            action = Categorical(logits=model.module(observation, "actor")).sample()
        reward = (action == observation[:, :3].argmax(1)).float()

        value = model(observation, "critic")
        critic_loss = nn.functional.mse_loss(value, reward)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

        advantage = reward - value.detach()
        policy = Categorical(logits=model(observation, "actor"))
        actor_loss = -(policy.log_prob(action) * advantage).mean() - 0.01 * policy.entropy().mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        history.append((reward.mean().item(), critic_loss.item(), actor_loss.item()))

    if rank == 0:
        print(f"reward {history[0][0]:.3f} -> {history[-1][0]:.3f}")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(history).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
