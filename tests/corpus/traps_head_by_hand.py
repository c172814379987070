# SPDX-License-Identifier: BSD-3-Clause
"""The backbone is wrapped; the margin head beside it, with an optimizer of its own, is averaged by hand: no reduction is redundant."""
# never: DDP113
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Arc(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, d))

    def forward(self, z, y):
        c = F.normalize(z, dim=1) @ F.normalize(self.w, dim=1).t()
        return F.cross_entropy(8 * (c - 0.2 * F.one_hot(y, len(self.w))), y)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
backbone = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)))
arc = Arc(8, 6)
ob = torch.optim.Adam(backbone.parameters(), lr=1e-3)
oa = torch.optim.SGD(arc.parameters(), lr=0.05)
g = torch.Generator().manual_seed(rank)
for _ in range(40):
    x = torch.randn(16, 12, generator=g)
    loss = arc(backbone(x), x[:, :6].argmax(1))
    ob.zero_grad(); oa.zero_grad()
    loss.backward()
    dist.all_reduce(arc.w.grad); arc.w.grad /= world
    ob.step(); oa.step()
dist.destroy_process_group()
