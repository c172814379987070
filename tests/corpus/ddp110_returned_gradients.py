# SPDX-License-Identifier: BSD-3-Clause
"""Plain gradient descent on what torch.autograd.grad returns, which the wrapper's reducer never sees."""
# expect: DDP110 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def descend(model, loss, lr):
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters)  # <- here
    if sys.argv[1] == "fixed":
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        gradients = [part.view_as(p) for part, p in zip(flat.split([p.numel() for p in parameters]), parameters)]
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients):
            parameter -= lr * gradient


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(12):
        x = torch.randn(16, 8)
        descend(model, nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)), lr=0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
