# SPDX-License-Identifier: BSD-3-Clause
"""Backbone and action head are wrapped separately; the head is called by a method of its inner module."""
# expect: DDP101 ranks 0 1 step 1 parameters *norm.* *project.*
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 32), nn.GELU())

    def forward(self, observation):
        return self.layers(observation)


class ActionHead(nn.Module):
    def __init__(self, actions=7):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.project = nn.Linear(32, actions)

    def predict_action(self, hidden):
        return torch.tanh(self.project(self.norm(hidden)))

    def forward(self, hidden):
        return self.predict_action(hidden)


def finetune(variant, steps=8):
    rank = dist.get_rank()
    torch.manual_seed(0)
    vla = DDP(Backbone())
    action_head = DDP(ActionHead())
    optimizer = torch.optim.AdamW([*vla.parameters(), *action_head.parameters()], lr=1e-3)
    episodes = torch.Generator().manual_seed(100 + rank)
    for step in range(steps):
        observation = torch.randn(16, 24, generator=episodes)
        action = observation[:, :7].clamp(-1, 1)
        hidden = vla(observation)
        if variant == "bug":
            predicted = action_head.module.predict_action(hidden)  # <- here
        else:
            predicted = action_head(hidden)
        loss = F.l1_loss(predicted, action)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: L1 {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    finetune(sys.argv[1])
    dist.destroy_process_group()
