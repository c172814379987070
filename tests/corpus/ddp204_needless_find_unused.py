# SPDX-License-Identifier: BSD-3-Clause
"""find_unused_parameters comes from a configuration that was copied from another project; nothing is ever unused."""
# expect: DDP204
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {
    "model": {"channels": 8, "classes": 3},
    "optimizer": {"lr": 0.05, "momentum": 0.9},
    "ddp": {"find_unused_parameters": sys.argv[1] == "bug", "broadcast_buffers": False},
    "steps": 8,
}


def conv(channels_in, channels_out):
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.GroupNorm(2, channels_out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.down = conv(1, channels)
        self.bottom = conv(channels, channels)
        self.up = conv(2 * channels, channels)
        self.out = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        skip = self.down(x)
        below = self.bottom(nn.functional.avg_pool2d(skip, 2))
        below = nn.functional.interpolate(below, scale_factor=2)
        return self.out(self.up(torch.cat([skip, below], dim=1)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(UNet(**CONFIG["model"]), **CONFIG["ddp"])  # <- here
    optimizer = torch.optim.SGD(model.parameters(), **CONFIG["optimizer"])
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(CONFIG["steps"]):
        images = torch.rand(4, 1, 12, 12, generator=generator)
        labels = (images[:, 0] * 3).long().clamp(max=2)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
