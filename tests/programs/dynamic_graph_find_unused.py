# SPDX-License-Identifier: BSD-3-Clause
"""Layers chosen by step and by rank, with find_unused_parameters=True; some are used by no rank at some steps."""
import hashlib
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Router(nn.Module):
    """A shared trunk, then one of the experts, then a layer that only every third step needs."""

    def __init__(self, width=16, experts=4):
        super().__init__()
        self.trunk = nn.Linear(width, width)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.refine = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x, expert, refine):
        x = torch.relu(self.trunk(x))
        x = torch.relu(self.experts[expert](x))
        if refine:
            x = x + self.refine(x)
        return self.out(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(13)
    model = DDP(Router(), find_unused_parameters=True)
    # Without weight decay and momentum, which would move experts that had no gradient.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    choice = random.Random(rank)
    torch.manual_seed(20 + rank)
    losses, routes = [], []
    for step in range(24):
        x = torch.randn(12, 16)
        expert = choice.randrange(4) if step % 4 else 0
        loss = nn.functional.mse_loss(model(x, expert, refine=step % 3 == 0), x[:, :1].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        routes.append(expert)

    print(f"rank {rank} routes: {routes}")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, routes)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
