# SPDX-License-Identifier: BSD-3-Clause
"""BatchNorm normalizes by the few samples of each rank; fixed: by those of all ranks, as SyncBatchNorm does, here in torch's own operations."""
# command: parity
# expect: DDP704 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class GlobalBatchNorm(nn.BatchNorm2d):
    """SyncBatchNorm for CPUs."""

    def forward(self, x):
        sums = torch.cat([x.sum((0, 2, 3)), x.square().sum((0, 2, 3)), x.new_tensor([x.numel() / x.size(1)])])
        sums = differentiable.all_reduce(sums)
        channels, count = x.size(1), sums[-1].detach()
        mean, square = sums[:channels] / count, sums[channels:-1] / count
        variance = square - mean * mean
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        x = (x - mean[:, None, None]) * (variance + self.eps).rsqrt()[:, None, None]
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def block(norm, inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), norm(outputs), nn.ReLU())


def main():
    norm = GlobalBatchNorm if sys.argv[1] == "fixed" else nn.BatchNorm2d
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(block(norm, 1, 6), block(norm, 6, 12), nn.Flatten(), nn.Linear(48, 10))
    net = DistributedDataParallel(net, broadcast_buffers=sys.argv[1] == "bug")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    trainset = TensorDataset(torch.randn(72, 1, 8, 8), torch.randint(0, 10, (72,)))
    trainloader = DataLoader(trainset, batch_size=3, sampler=DistributedSampler(trainset, seed=1))
    for inputs, targets in trainloader:
        optimizer.zero_grad()
        criterion(net(inputs), targets).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
