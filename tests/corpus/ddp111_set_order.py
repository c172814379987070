# SPDX-License-Identifier: BSD-3-Clause
"""The parameters that take part are kept as a set of names, whose order is each process's own, and gradients are averaged in one flat buffer."""
# expect: DDP111 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn


class Reducer:
    def __init__(self, module, ordered):
        self.table = dict(module.named_parameters())
        self.names = sorted(self.table) if ordered else shuffled(self.table)

    def __call__(self):
        gradients = [self.table[name].grad for name in self.names]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)  # <- here
        flat /= dist.get_world_size()
        for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(part.view_as(gradient))


def shuffled(names):
    """What `set(names)` is in processes with different PYTHONHASHSEED."""
    names = sorted(names)
    return names[2:] + names[:2] if dist.get_rank() else names


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 5))
    average = Reducer(model, variant == "fixed")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(16, 10, generator=data)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :5]).backward()
        average()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
