# SPDX-License-Identifier: BSD-3-Clause
"""A bfloat16 model whose optimizer has float32 copies of the weights: their gradients are taken from the model before these are averaged."""
# expect: DDP104 step 1
# needs: torch>=2.1
import sys

import torch
import torch.distributed as dist
from torch import nn


class Masters:
    """What the optimizer holds, and the model whose weights are copies of it."""

    def __init__(self, model, rate):
        self.model = list(model.parameters())
        self.held = nn.ParameterList([nn.Parameter(p.detach().float()) for p in self.model])
        self.optimizer = torch.optim.Adam(self.held.parameters(), lr=rate)

    def take_gradients(self):
        for held, p in zip(self.held, self.model):
            held.grad = p.grad.float()

    def step(self):
        self.optimizer.step()
        with torch.no_grad():
            for held, p in zip(self.held, self.model):
                p.copy_(held)
                p.grad = None


def average(parameters):
    for p in parameters:
        dist.all_reduce(p.grad)  # <- here
        p.grad /= dist.get_world_size()


def main(first):
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3)).bfloat16()
    masters = Masters(model, 1e-2)
    source = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(12):
        features = torch.randn(16, 12, generator=source)
        labels = features[:, :3].argmax(1)
        nn.functional.cross_entropy(model(features.bfloat16()).float(), labels).backward()
        if first == "average":
            average(masters.model)
            masters.take_gradients()
        else:
            masters.take_gradients()
            average(masters.model)
        masters.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main({"bug": "take", "fixed": "average"}[sys.argv[1]])
