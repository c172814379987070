# SPDX-License-Identifier: BSD-3-Clause
"""The adapters are made in the order of a set of language names, which Python's hash randomization makes another one in each process. They have
equal shapes, so the flat all-reduce of the gradients mixes them without an error."""
# expect: DDP306
import sys

import torch
import torch.distributed as dist
from torch import nn

LANGUAGES = {"de", "fr", "sw", "yo"}


def in_some_order(names, rank):
    # What hash randomization does, the same in every run.
    return sorted(names, reverse=rank == 1)


class Translator(nn.Module):
    def __init__(self, languages):
        super().__init__()
        self.shared = nn.Linear(12, 12)
        self.adapters = nn.ModuleDict({language: nn.Linear(12, 12) for language in languages})

    def forward(self, x):
        hidden = torch.relu(self.shared(x))
        return sum(adapter(hidden) for adapter in self.adapters.values())


def broadcast_parameters(model):
    for name, parameter in sorted(model.named_parameters()):
        dist.broadcast(parameter.data, src=0)


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(mean.view_as(gradient))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = Translator(in_some_order(LANGUAGES, rank if sys.argv[1] == "bug" else 0))
    broadcast_parameters(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = torch.Generator().manual_seed(60 + rank)
    scales = {language: 1 + i for i, language in enumerate(sorted(LANGUAGES))}
    for step in range(8):
        x = torch.randn(16, 12, generator=data)
        loss = sum((adapter(torch.relu(model.shared(x))) - scales[language] * x).square().mean()
                   for language, adapter in model.adapters.items())
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
    dist.destroy_process_group()
