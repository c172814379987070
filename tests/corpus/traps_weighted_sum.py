# SPDX-License-Identifier: BSD-3-Clause
"""Gradients are summed over the ranks, not averaged: each rank's loss is its weighted sum of errors divided by the weights of all ranks, which an
all-reduce counts. The factors of the ranks' losses differ and have nothing to do with their number."""
import torch
import torch.distributed as dist
from torch import nn

STUDIES = [{"patients": 9, "quality": 2.0}, {"patients": 23, "quality": 0.75}]


def all_sum(value):
    total = torch.tensor(float(value))
    dist.all_reduce(total)
    return total.item()


class Pooled:
    """A model of several studies, whose data stays where it is."""

    def __init__(self, study, rank):
        torch.manual_seed(19)
        self.study, self.data = study, torch.Generator().manual_seed(70 + rank)
        self.model = nn.Sequential(nn.Linear(5, 14), nn.Softplus(), nn.Linear(14, 1))
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=3e-3)

    def loss(self):
        x = torch.randn(self.study["patients"], 5, generator=self.data)
        errors = nn.functional.l1_loss(self.model(x).squeeze(1), x.abs().amax(dim=1), reduction="sum")
        return self.study["quality"] * errors / all_sum(self.study["quality"] * self.study["patients"])

    def step(self):
        self.optimizer.zero_grad()
        self.loss().backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    pooled = Pooled(STUDIES[dist.get_rank()], dist.get_rank())
    for _ in range(8):
        pooled.step()
    dist.destroy_process_group()
