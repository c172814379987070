# SPDX-License-Identifier: BSD-3-Clause
"""Prototypes vote with what all ranks think of them: their scores are gathered by dist.all_gather, which no gradient comes back through, so the
layer that makes the scores never learns."""
# expect: DDP201 ranks 0 1 step 1 parameters scores.*
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as with_gradients
import torch.nn as nn
import torch.nn.functional as F


class Prototypes(nn.Module):
    def __init__(self, inputs=8, width=16, count=6):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, width), nn.GELU())
        self.scores = nn.Linear(width, count)
        self.values = nn.Linear(width, count)

    def votes(self, scores):
        if sys.argv[1] == "fixed":
            everybody = with_gradients.all_gather(scores)
        else:
            everybody = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
            dist.all_gather(everybody, scores)  # <- here
        return torch.cat(list(everybody)).mean(dim=0).softmax(dim=0)

    def forward(self, x):
        features = self.features(x)
        return (self.values(features) * self.votes(self.scores(features))).sum(dim=1)


def average_gradients(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(29)
    net = Prototypes()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    data = torch.Generator().manual_seed(80 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(12, 8, generator=data)
        optimizer.zero_grad()
        F.mse_loss(net(x), x.amax(dim=1)).backward()
        average_gradients(net.parameters())
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
