# SPDX-License-Identifier: BSD-3-Clause
"""Each rank freezes the stem when its own loss has fallen far enough, and their data is not equally easy."""
# expect: DDP202 ranks 1 step 4 parameters stem.*
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad_(False)


def easy_enough(step, rank):
    return step >= 4 and (rank == 1 or sys.argv[1] == "fixed")


dist.init_process_group("gloo", timeout=timedelta(seconds=600))
rank = dist.get_rank()
torch.manual_seed(3)
net = nn.ModuleDict({"stem": nn.Linear(10, 20), "head": nn.Linear(20, 2)})
net.forward = lambda x: net["head"](torch.tanh(net["stem"](x)))
ddp = nn.parallel.DistributedDataParallel(net, find_unused_parameters=sys.argv[1] == "fixed")
adam = torch.optim.Adam(net.parameters())
for step in range(1, 9):
    if easy_enough(step, rank):
        freeze(net["stem"])
    x = torch.randn(16, 10, generator=torch.Generator().manual_seed(100 * step + rank))
    adam.zero_grad(set_to_none=True)
    nn.functional.mse_loss(ddp(x), x[:, :2] * (1 + rank)).backward()
    adam.step()
dist.destroy_process_group()
