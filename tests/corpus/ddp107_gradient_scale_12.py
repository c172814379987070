# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook compresses large buckets and divides them; small buckets take another branch, which forgets to."""
# expect: DDP107 ranks 0 1 step 2..3 parameters 0.*
# needs: torch>=2.3
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LARGE = 50_000


def hook(variant, bucket):
    buffer, world_size = bucket.buffer(), dist.get_world_size()
    if buffer.numel() < LARGE:
        if variant == "fixed":
            buffer.div_(world_size)
        return dist.all_reduce(buffer, async_op=True).get_future().then(lambda future: future.value()[0])
    half = buffer.div(world_size).to(torch.float16)
    return dist.all_reduce(half, async_op=True).get_future().then(lambda future: buffer.copy_(future.value()[0]))


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.1)
    model.register_comm_hook(variant, hook)  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(60 + dist.get_rank())
    for _ in range(10):
        x = torch.randn(32, 64, generator=data)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :10].argmax(1)).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
