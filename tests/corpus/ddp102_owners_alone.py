# SPDX-License-Identifier: BSD-3-Clause
"""A sharded optimizer by hand: the owner of a parameter steps on its own gradient, which nobody averages, and broadcasts the result."""
# expect: DDP102 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ZeroAdam:
    """Moments of a parameter are kept by its owner only; owners are dealt out in turn."""

    def __init__(self, parameters, **options):
        self.parameters = list(parameters)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.inner = torch.optim.Adam(self.parameters[self.rank::self.world], **options)

    def owned(self):
        return ((parameter, i % self.world) for i, parameter in enumerate(self.parameters))

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        if sys.argv[1] == "fixed":
            for parameter, _ in self.owned():
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.world
        self.inner.step()
        for parameter, owner in self.owned():
            dist.broadcast(parameter.data, owner)


def build():
    torch.manual_seed(17)
    return nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 18), nn.GELU(), nn.Linear(18, 3))


def main():
    dist.init_process_group("gloo")
    model = build()
    optimizer = ZeroAdam(model.parameters(), lr=3e-3)
    flowers = torch.Generator().manual_seed(60 + dist.get_rank())
    for step in range(10):
        x = torch.randn(20, 12, generator=flowers)
        loss = F.cross_entropy(model(x), x.view(20, 3, 4).sum(-1).argmax(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
