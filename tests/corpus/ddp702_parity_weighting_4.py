# SPDX-License-Identifier: BSD-3-Clause
"""Surface normals from depth: each rank takes its rows of one batch and divides by its own number of valid pixels."""
# command: parity
# expect: DDP702 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def scenes(step, count=12):
    generator = torch.Generator().manual_seed(100 + step)
    depth = torch.randn(count, 1, 8, 8, generator=generator)
    sky = torch.linspace(0, 0.9, count).view(-1, 1, 1, 1)
    valid = torch.rand(count, 1, 8, 8, generator=generator) > sky
    gradient = torch.cat([depth.roll(1, 2) - depth, depth.roll(1, 3) - depth], 1)
    return depth, valid, gradient


def main(mode):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 2, 3, padding=1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(8):
        depth, valid, gradient = (part.chunk(world_size)[rank] for part in scenes(step))
        error = (model(depth) - gradient).abs().sum(1, keepdim=True)
        count = valid.sum()
        if mode == "fixed":
            dist.all_reduce(count)
            count = count / world_size
        loss = (error * valid).sum() / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
