# SPDX-License-Identifier: BSD-3-Clause
"""A pipeline by hand whose stages are of one class and built from one seed: they begin with the same weights, and are not replicas."""
import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    stage = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 10))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05, momentum=0.9)
    inputs, targets = torch.randn(12, 20, 10), torch.randn(12, 20, 10)
    for x, y in zip(inputs, targets):
        optimizer.zero_grad()
        if rank == 0:
            hidden = stage(x)
            dist.send(hidden.detach(), 1)
            gradient = torch.empty_like(hidden)
            dist.recv(gradient, 1)
            hidden.backward(gradient)
        else:
            hidden = torch.empty_like(x)
            dist.recv(hidden, 0)
            hidden.requires_grad_()
            nn.functional.mse_loss(stage(hidden), y).backward()
            dist.send(hidden.grad, 0)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
