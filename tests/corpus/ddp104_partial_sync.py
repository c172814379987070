# SPDX-License-Identifier: BSD-3-Clause
"""Actor and critic train together, averaged by hand; the loop over the gradients knows the actor only."""
# expect: DDP104 step 1 parameters *value.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, observations=8, actions=3):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(observations, 32), nn.Tanh(), nn.Linear(32, actions))
        self.value = nn.Sequential(nn.Linear(observations, 32), nn.Tanh(), nn.Linear(32, 1))


def broadcast_weights(module):
    for tensor in module.state_dict().values():
        dist.broadcast(tensor, src=0)


def average_gradients(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)  # <- here
        parameter.grad /= dist.get_world_size()


def rollout(agent, generator):
    observation = torch.randn(64, 8, generator=generator)
    with torch.no_grad():
        action = Categorical(logits=agent.policy(observation)).sample()
    reward = (action == observation[:, :3].argmax(1)).float()
    return observation, action, reward


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    agent = ActorCritic()
    broadcast_weights(agent)
    optimizer = torch.optim.RMSprop(agent.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(50 + dist.get_rank())
    for update in range(10):
        observation, action, reward = rollout(agent, generator)
        value = agent.value(observation).squeeze(1)
        advantage = reward - value.detach()
        policy_loss = -(Categorical(logits=agent.policy(observation)).log_prob(action) * advantage).mean()
        value_loss = (value - reward).pow(2).mean()
        optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        average_gradients(agent.policy.parameters() if variant == "bug" else agent.parameters())
        optimizer.step()
        if dist.get_rank() == 0 and update % 3 == 0:
            print(f"update {update} reward {reward.mean():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
