# SPDX-License-Identifier: BSD-3-Clause
"""The forwards of all micro-batches in one loop, their backwards in a later one: only the first backward is reduced."""
# expect: DDP109 ranks 0 1 step 1
# From a GAN whose generator's pictures are kept for its own turn (kazuto1011/dusty-gan).
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO_BATCHES = 3


def no_sync_but_last(model, index):
    return contextlib.nullcontext() if index + 1 == MICRO_BATCHES else model.no_sync()


def losses_of(model, batches):
    for index, (x, y) in enumerate(batches):
        with no_sync_but_last(model, index):
            yield nn.functional.mse_loss(model(x), y) / MICRO_BATCHES


def accumulate(model, losses):
    for index, loss in enumerate(losses):
        with no_sync_but_last(model, index):
            loss.backward()  # <- here


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(7, 14), nn.Softplus(), nn.Linear(14, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(40 + dist.get_rank())
    for _ in range(6):
        batches = [(torch.randn(5, 7, generator=data), torch.randn(5, 2, generator=data)) for _ in range(MICRO_BATCHES)]
        losses = losses_of(model, batches)  # a generator: each forward comes when its backward asks for it
        if sys.argv[1] == "bug":
            losses = list(losses)
        optimizer.zero_grad()
        accumulate(model, losses)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
