# SPDX-License-Identifier: BSD-3-Clause
"""From step 37 on a curriculum switches to a longer horizon, whose loss is a method of the unwrapped model."""
# expect: DDP101 ranks 0 1 step 31..40
# expect --every 1: DDP101 ranks 0 1 step 37
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, SWITCH = 50, 37


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 3))

    def forward(self, states, horizon=1):
        predicted, loss = states[0], 0.0
        for truth in states[1:horizon + 1]:
            predicted = predicted + self.step(predicted)
            loss = loss + nn.functional.mse_loss(predicted, truth)
        return loss / horizon

    def rollout_loss(self, states):
        return self(states, horizon=3)


def trajectories(generator, size=12):
    rotation = torch.tensor([[0.9, -0.3, 0.0], [0.3, 0.9, 0.0], [0.0, 0.0, 0.8]])
    states = [torch.randn(size, 3, generator=generator)]
    for _ in range(3):
        states.append(states[-1] @ rotation)
    return states


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Dynamics())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, STEPS + 1):
        states = trajectories(generator)
        if step < SWITCH:
            loss = model(states)
        elif variant == "bug":
            loss = model.module.rollout_loss(states)  # <- here
        else:
            loss = model(states, horizon=3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
