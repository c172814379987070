# SPDX-License-Identifier: BSD-3-Clause
"""Fine-tuning with accumulated gradients: the classifier is replaced after wrapping, and the reducer complains before the first step."""
# expect: DDP105 step 1 parameters fc.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 1000)

    def forward(self, images):
        return self.fc(self.conv(images).relu().mean((2, 3)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Backbone()
    head = nn.Linear(8, 10)
    if sys.argv[1] != "bug":
        net.fc = head
    model = DDP(net)  # <- here
    if sys.argv[1] == "bug":
        net.fc = head
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(dist.get_rank())
    for batch in range(12):
        images, labels = torch.randn(4, 3, 8, 8, generator=data), torch.randint(0, 10, (4,), generator=data)
        (nn.functional.cross_entropy(model(images), labels) / 2).backward()
        if batch % 2:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
