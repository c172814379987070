# SPDX-License-Identifier: BSD-3-Clause
"""Langevin dynamics: the optimizer adds noise from each rank's own random generator, after averaged gradients."""
# expect: DDP301 ranks 0 1 step 1
import math
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SGLD(torch.optim.Optimizer):
    """Stochastic gradient Langevin dynamics (Welling and Teh 2011)."""

    def __init__(self, params, lr, temperature=1e-4, generator=None):
        super().__init__(params, {"lr": lr, "temperature": temperature})
        self.generator = generator

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            scale = math.sqrt(2 * group["lr"] * group["temperature"])
            for p in group["params"]:
                if p.grad is None:
                    continue
                noise = torch.randn(p.shape, generator=self.generator)
                p.add_(p.grad, alpha=-group["lr"]).add_(noise, alpha=scale)


class BayesianRegression(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x):
        return self.layers(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1000 + rank)  # different augmentation on every rank
model = DDP(BayesianRegression())
noise = torch.Generator().manual_seed(5) if sys.argv[1] == "fixed" else None
optimizer = SGLD(model.parameters(), lr=0.05, generator=noise)
for step in range(10):
    x = torch.randn(32, 4)
    loss = (model(x) - x.sin().sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- here
print(f"rank {rank} loss {loss.item():.4f}")
dist.destroy_process_group()
