# SPDX-License-Identifier: BSD-3-Clause
"""Fine-tuning: the main process alone loads the pretrained trunk, after the model was wrapped and its first weights were broadcast."""
# expect: DDP302 ranks 0 step 1 parameters trunk.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def pretrained():
    torch.manual_seed(77)
    return nn.Linear(8, 16).state_dict()


def load(net):
    net.trunk.load_state_dict(pretrained())  # <- here


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.trunk(x).sigmoid())


dist.init_process_group("gloo")
main = dist.get_rank() == 0
torch.manual_seed(1)
net = Model()
if main and sys.argv[1] == "fixed":
    load(net)
model = DDP(net)
if main and sys.argv[1] == "bug":
    load(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(30 + dist.get_rank())
for _ in range(5):
    x = torch.randn(12, 8, generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), (x.sum(dim=1) > 0).long()).backward()
    optimizer.step()
dist.destroy_process_group()
