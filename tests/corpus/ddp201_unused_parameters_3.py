# SPDX-License-Identifier: BSD-3-Clause
"""A confidence head weights the errors, and its output is detached, so that it never learns."""
# expect: DDP201 ranks 0 1 step 1 parameters confidence.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DETACH = sys.argv[1] == "bug"


class Landmarks(nn.Module):
    """Regresses points, and how sure it is of each."""

    def __init__(self, points=4):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
        self.position = nn.Linear(8, 2 * points)
        self.confidence = nn.Linear(8, points)

    def forward(self, images):
        features = self.backbone(images).mean((2, 3))
        position = self.position(features).unflatten(1, (-1, 2))
        confidence = self.confidence(features).sigmoid()
        return position, confidence.detach() if DETACH else confidence


def weighted_loss(position, confidence, truth):
    error = (position - truth).pow(2).sum(2)
    return (confidence * error - 0.1 * confidence.log()).mean()


class Trainer:
    def __init__(self, model):
        self.model = DDP(model)  # <- here
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(self, images, truth):
        self.optimizer.zero_grad()
        loss = weighted_loss(*self.model(images), truth)
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(Landmarks())
    faces = torch.Generator().manual_seed(17 * dist.get_rank())
    for i in range(8):
        loss = trainer.step(torch.rand(10, 1, 16, 16, generator=faces), torch.rand(10, 4, 2, generator=faces))
        if dist.get_rank() == 0:
            print(f"{i}: {loss:.4f}")
    dist.destroy_process_group()
