# SPDX-License-Identifier: BSD-3-Clause
"""An optimizer asks autograd for gradients around DDP, and whitens them; in a step the signs of an L1 loss cancel on one rank: zeros are a gradient."""
# expect: DDP110 ranks 0 1 step 1
import sys

import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class WhitenedSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, beta=0.95, reduce=None):
        super().__init__(params, dict(lr=lr, beta=beta))
        self.reduce = reduce

    def minimize(self, loss):
        params = [p for g in self.param_groups for p in g["params"]]
        for p, g in zip(params, torch.autograd.grad(loss, params)):
            p.grad = g if self.reduce is None else self.reduce(g)
        self.step()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                st = self.state[p]
                if not st:
                    st["sq"] = torch.zeros_like(p)
                st["sq"].mul_(group["beta"]).addcmul_(p.grad, p.grad, value=1 - group["beta"])
                p.addcdiv_(p.grad, st["sq"].sqrt().add_(1e-6), value=-group["lr"])


def mean_over_ranks(g):
    g = g.contiguous()
    dist.all_reduce(g)
    return g.div_(dist.get_world_size())


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(6, 64), nn.Softplus(), nn.Linear(64, 2)))
opt = WhitenedSGD(model.parameters(), lr=2e-3, reduce=mean_over_ranks if sys.argv[1] == "fixed" else None)
src = torch.Generator().manual_seed(900 + rank)
for k in range(42):
    x = torch.rand(16, 6, generator=src)
    y = torch.stack([x.prod(1), x.sum(1)], 1)
    opt.minimize(torch.nn.functional.l1_loss(model(x), y))
dist.destroy_process_group()
