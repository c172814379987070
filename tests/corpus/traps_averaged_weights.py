# SPDX-License-Identifier: BSD-3-Clause
"""Stochastic weight averaging after accumulation: an epoch without a backward updates the BatchNorm statistics, and each step is taken twice on
the same gradients, with momentum in between (extrapolation)."""
# never: DDP203
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(13)
    net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 2))
    model = DDP(net)
    averaged = AveragedModel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    data = torch.Generator().manual_seed(dist.get_rank())
    for epoch in range(3):
        for batch in range(8):
            last = batch % 2 == 1
            x = torch.randn(16, 6, generator=data)
            with contextlib.nullcontext() if last else model.no_sync():
                (nn.functional.cross_entropy(model(x), (x.sum(dim=1) > 0).long()) / 2).backward()
            if last:
                optimizer.step()
                optimizer.step()  # on the same gradients
                optimizer.zero_grad()
        averaged.update_parameters(net)
        with torch.no_grad():
            for _ in range(3):  # the statistics of this epoch's weights
                model(torch.randn(16, 6, generator=data))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
