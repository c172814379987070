# SPDX-License-Identifier: BSD-3-Clause
"""Detection with two images per rank: BatchNorm normalizes over two images, whatever the number of ranks."""
# expect: DDP405
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def norm_layer(kind, channels):
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(4, channels)


class Backbone(nn.Module):
    def __init__(self, norm, channels=(3, 8, 16)):
        super().__init__()
        self.stages = nn.ModuleList()
        for channels_in, channels_out in zip(channels, channels[1:]):
            self.stages.append(nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False),
                norm_layer(norm, channels_out),
                nn.ReLU(inplace=True),
            ))
        self.box = nn.Linear(channels[-1], 4)

    def forward(self, images):
        for stage in self.stages:
            images = stage(images)
        return self.box(images.mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--images-per-rank", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Backbone(norm="batch" if args.variant == "bug" else "group"))  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(10):
        images = torch.rand(args.images_per_rank, 3, 32, 32, generator=generator)
        boxes = torch.rand(args.images_per_rank, 4, generator=generator)
        loss = nn.functional.smooth_l1_loss(model(images), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 4 == 0:
            print(f"iteration {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
