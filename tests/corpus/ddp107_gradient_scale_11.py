# SPDX-License-Identifier: BSD-3-Clause
"""Gradients are summed module by module, so that the embedding, which the head shares, is summed twice; then all are divided by the world size."""
# expect: DDP107 ranks 0 1 step 1 parameters wte.weight
import sys

import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    def __init__(self, vocabulary=20, width=16):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens)
        return self.head(x + torch.tanh(self.mix(self.norm(x))))


def by_module(model):
    for module in model.modules():
        yield from module.parameters(recurse=False)


def synchronize(model, variant):
    for parameter in by_module(model) if variant == "bug" else model.parameters():
        dist.all_reduce(parameter.grad)  # <- here
    for parameter in model.parameters():
        parameter.grad /= dist.get_world_size()


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(1337)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        tokens = torch.randint(0, 20, (64,), generator=data)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), (tokens + 7) % 20).backward()
        synchronize(model, variant)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
