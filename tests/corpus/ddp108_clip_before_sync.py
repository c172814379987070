# SPDX-License-Identifier: BSD-3-Clause
"""Normalized gradient descent: every rank normalizes its own gradient, and the average is taken afterwards."""
# expect: DDP108 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn


def flat_gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def normalize(model):
    norm = flat_gradient(model).norm()
    for parameter in model.parameters():
        parameter.grad /= norm + 1e-8


def all_reduce_mean(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # <- here
        parameter.grad /= dist.get_world_size()


def main(variant):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.7)
    generator = torch.Generator().manual_seed(30 + rank)
    for step in range(10):
        x = torch.randn(32, 8, generator=generator)
        y = x.pow(2).mean(1, keepdim=True) * (1.0 + 4.0 * rank)  # regions of very different scale
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if variant == "bug":
            normalize(model)
            all_reduce_mean(model)
        else:
            all_reduce_mean(model)
            normalize(model)
        optimizer.step()
        scheduler.step()
        if step % 5 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
