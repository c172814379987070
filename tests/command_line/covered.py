# SPDX-License-Identifier: BSD-3-Clause
# Healthy programs in which not everything is compared. usage: covered.py ignored|delayed|teacher|zero|spare
import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.table = nn.Linear(6, 12), nn.Linear(12, 3), nn.Embedding(5, 3)

    def forward(self, x):
        return self.head(self.body(x).relu()) + self.table(torch.zeros(len(x), dtype=torch.long))


how = sys.argv[1]
dist.init_process_group("gloo")
torch.manual_seed(3)
net, spare = Net(), nn.Linear(4, 4)
delayed = {}
if how == "ignored":
    net.table.weight.data += dist.get_rank()
    net.table.weight.requires_grad_(False)
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["table.weight"])
if how == "delayed":
    delayed = dict(delay_all_reduce_named_params=[("table.weight", net.table.weight)], param_to_hook_all_reduce=net.head.weight)
ddp = DDP(net, **delayed)
optimizer = torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], lr=0.1)
second = torch.optim.SGD(spare.parameters(), lr=0.1)
teacher = copy.deepcopy(net) if how == "teacher" else None
torch.manual_seed(dist.get_rank())
for step in range(10):
    optimizer.zero_grad()
    x = torch.randn(8, 6)
    outputs = ddp(x)
    target = 0 if teacher is None else teacher(x).detach() + 1
    (outputs * (how != "zero") - target).square().mean().backward()
    optimizer.step()
    if how == "spare":
        second.step()
    for mine, students in zip(teacher.parameters() if teacher is not None else (), net.parameters()):
        mine.data.lerp_(students.data, 0.1)
dist.destroy_process_group()
