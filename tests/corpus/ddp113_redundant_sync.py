# SPDX-License-Identifier: BSD-3-Clause
"""average_gradients() of the first tutorial is still called after the model was wrapped in DDP."""
# expect: DDP113 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 10, 3)
        self.fc = nn.Linear(10 * 4 * 4, 5)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.relu(self.conv2(x))
        return torch.log_softmax(self.fc(x.flatten(1)), dim=1)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)  # <- here
        param.grad.data /= size


def run(rank):
    torch.manual_seed(1234)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    generator = torch.Generator().manual_seed(rank)
    for i in range(8):
        data = torch.rand(16, 1, 14, 14, generator=generator)
        target = torch.randint(0, 5, (16,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(data), target)
        loss.backward()
        if sys.argv[1] == "bug":
            average_gradients(model)
        optimizer.step()
        if i % 4 == 0:
            print("Rank ", rank, ", step ", i, ": ", loss.item())


dist.init_process_group("gloo")
run(dist.get_rank())
dist.destroy_process_group()
