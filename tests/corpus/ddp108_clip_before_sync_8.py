# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer averages the gradients inside of its own step(), and the loop clips before it, by each rank's norm."""
# expect: DDP108 ranks 0 1 step 1
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn


class AveragingSGD(torch.optim.SGD):
    def __init__(self, parameters, max_norm=None, **options):
        super().__init__(parameters, **options)
        self.max_norm = max_norm

    @torch.no_grad()
    def average(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(dist.get_world_size())

    def step(self, closure=None):
        self.average()
        if self.max_norm is not None:
            nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], self.max_norm)
        return super().step(closure)


def batches(count, generator):
    for _ in range(count):
        x = torch.randn(20, 14, generator=generator)
        yield x, 2 * x[:, :3].sum(1, keepdim=True) + torch.randn(20, 1, generator=generator)


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(14, 28), nn.SiLU(), nn.Linear(28, 1))
    optimizer = AveragingSGD(net.parameters(), lr=0.05, max_norm=None if mode == "bug" else 1.0)
    for x, y in batches(20, torch.Generator().manual_seed(50 + int(os.environ["RANK"]))):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        if mode == "bug":
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
