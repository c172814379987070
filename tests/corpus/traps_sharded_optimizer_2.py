# SPDX-License-Identifier: BSD-3-Clause
"""A sharded optimizer: each rank updates the parameters that it owns and broadcasts them."""
import torch
import torch.distributed as dist
from torch import nn


class Sharded:
    def __init__(self, params, lr):
        self.params = list(params)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        sizes, self.owner = [0] * self.world, {}
        for p in sorted(self.params, key=lambda p: -p.numel()):
            r = sizes.index(min(sizes))
            self.owner[p] = r
            sizes[r] += p.numel()
        self.opt = torch.optim.AdamW([p for p in self.params if self.owner[p] == self.rank], lr)

    def step(self):
        for p in self.params:
            dist.reduce(p.grad, self.owner[p])
            if self.owner[p] == self.rank:
                p.grad /= self.world
        self.opt.step()
        for p in self.params:
            dist.broadcast(p.data, self.owner[p])

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 10))
    opt = Sharded(net.parameters(), 1e-2)
    g = torch.Generator().manual_seed(dist.get_rank() + 4)
    for _ in range(8):
        x = torch.randn(8, 10, generator=g)
        opt.zero_grad()
        (net(x) - x.tanh()).pow(2).mean().backward()
        opt.step()
    dist.destroy_process_group()


main()
