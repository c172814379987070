# SPDX-License-Identifier: BSD-3-Clause
"""A growing network: a block is added to the wrapped model in the middle of training, and gradients are clipped by a norm that contains it."""
# expect: DDP106 ranks 0 1 step 4 parameters blocks.1.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Growing(nn.Module):
    def __init__(self, width=14):
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList([nn.Linear(width, width)])
        self.out = nn.Linear(width, 3)

    def grow(self):
        block = nn.Linear(self.width, self.width)  # <- here
        nn.init.eye_(block.weight)
        nn.init.zeros_(block.bias)
        self.blocks.append(block)
        return block

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.out(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(4)
net = Growing()
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for step in range(8):
    if step == 3:
        block = net.grow()
        if sys.argv[1] == "fixed":
            model = DDP(net)
        optimizer.add_param_group({"params": block.parameters()})
    x = torch.randn(16, 14, generator=generator)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
dist.destroy_process_group()
