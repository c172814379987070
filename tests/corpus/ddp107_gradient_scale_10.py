# SPDX-License-Identifier: BSD-3-Clause
"""A helper for wrapped and plain models divides by the world size in both cases: the wrapper has done so already."""
# expect: DDP107 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def finish_gradients(model, variant):
    wrapped = isinstance(model, DistributedDataParallel)
    if wrapped and variant == "fixed":
        return
    for parameter in model.parameters():
        if not wrapped:
            dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(16, 10, generator=data)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.cumsum(1)).backward()
        finish_gradients(model, variant)
        optimizer.step()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
