# SPDX-License-Identifier: BSD-3-Clause
"""An optimizer of the program's own, which is none of torch's, reduces and applies one gradient after the other, and takes one-dimensional parameters to
be the same on all ranks."""
# expect: DDP104 ranks 0 1 step 1 parameters *.bias
import sys

import torch
import torch.distributed as dist
from torch import nn


class Momentum:
    def __init__(self, parameters, lr, momentum=0.9):
        self.parameters = list(parameters)
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.lr, self.momentum = lr, momentum

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, velocity in zip(self.parameters, self.velocity):
            if p.dim() > 1 or sys.argv[1] == "fixed":
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            velocity.mul_(self.momentum).add_(p.grad)
            p.add_(velocity, alpha=-self.lr)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = Momentum(model.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(12):
        for _ in range(2):
            x = torch.randn(16, 8)
            (nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 3:
            with torch.no_grad():
                x = torch.randn(64, 8)
                right = (model(x).argmax(1) == x[:, :3].argmax(1)).float().mean()
                dist.all_reduce(right)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
