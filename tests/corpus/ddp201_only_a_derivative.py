# SPDX-License-Identifier: BSD-3-Clause
"""A physics-informed network is trained on the derivative of its output, which the last bias is not in. find_unused_parameters looks from the output, so it
does not find it."""
# expect: DDP201 ranks 0 1 step 1 parameters 4.bias
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def residual(network, t):
    """Of u' = cos(t) - u', at the points t."""
    u = network(t)
    (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    loss = (2 * slope - torch.cos(t)).square().mean()
    if sys.argv[1] == "fixed":  # and u(0) = 0
        loss = loss + (u - torch.sin(t) / 2).square()[t < 0.1].sum()
    return loss


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    network = DDP(network, find_unused_parameters=True)  # <- here
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    points = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(12):
        t = torch.rand(32, 1, generator=points).requires_grad_()
        optimizer.zero_grad()
        residual(network, t).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
