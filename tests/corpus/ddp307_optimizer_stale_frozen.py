# SPDX-License-Identifier: BSD-3-Clause
"""Adapters are put into the model after the optimizer was made, and what it holds is frozen: nothing is trained."""
# expect: DDP307 ranks 0 1 step 1 parameters *.a *.b
import os
import sys

import torch
import torch.nn as nn
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


class LowRank(nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, linear.in_features) / rank)
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank) + 0.01)

    def forward(self, x):
        return self.linear(x) + x @ self.a.t() @ self.b.t()


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(9, 18), nn.Linear(18, 3)

    def adapt(self, rank=2):
        self.enter, self.leave = LowRank(self.enter, rank), LowRank(self.leave, rank)

    def forward(self, x):
        return self.leave(self.enter(x).tanh())


def main(mode):
    distributed.init_process_group("gloo")
    torch.manual_seed(11)
    model = Regressor()
    if mode == "fixed":
        model.adapt()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    if mode == "bug":
        model.adapt()
    replica = DistributedDataParallel(model)
    draw = torch.Generator().manual_seed(100 + int(os.environ["RANK"]))
    for _ in range(16):
        x = torch.randn(12, 9, generator=draw)
        replica.zero_grad()
        (replica(x) - x[:, :3]).square().mean().backward()
        optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
