# SPDX-License-Identifier: BSD-3-Clause
"""The wrapper went with a line that was commented out, and each rank seeds by its rank: neither weights nor gradients have anything in common.
The biases of both branches get one and the same gradient, by construction."""
# expect: DDP102 step 1
# also: DDP405
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels)
        self.last = nn.Conv2d(channels, channels, 1)
        self.shortcut = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.conv(x)))) + self.shortcut(x)


def main(rank, world_size):
    torch.manual_seed(1000 + rank)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    if sys.argv[1] == "fixed":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # <- here
    for epoch in range(2):
        correct = torch.zeros(1)
        for _ in range(4):
            images = torch.randn(8, 3, 12, 12)
            labels = images.mean(dim=(1, 2, 3)).mul(40).long().clamp(0, 9)
            logits = model(images)
            optimizer.zero_grad()
            F.cross_entropy(logits, labels).backward()
            optimizer.step()
            correct += (logits.argmax(dim=1) == labels).sum()
        dist.all_reduce(correct)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {correct.item() / (32 * world_size):.2f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
