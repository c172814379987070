# SPDX-License-Identifier: BSD-3-Clause
"""The loss leaves out the output of an auxiliary head: its parameters are ready, without a gradient."""
# expect: DDP201 step 1 parameters aux.*
# also: DDP207 DDP208
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(10, 30), nn.ReLU())
        self.aux = nn.Linear(30, 4)
        self.b = nn.Sequential(nn.Linear(30, 30), nn.ReLU())
        self.fc = nn.Linear(30, 4)

    def forward(self, x):
        h = self.a(x)
        return self.fc(self.b(h)), self.aux(h)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Inception()
if sys.argv[1:] != ["bug"]:
    net.aux.requires_grad_(False)
net = DDP(net, find_unused_parameters=sys.argv[1:] == ["bug"])
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
torch.manual_seed(8 + dist.get_rank())
for i in range(10):
    x = torch.randn(8, 10)
    logits, _ = net(x)
    loss = nn.functional.cross_entropy(logits, x[:, :4].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
