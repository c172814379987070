# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook that leaves small buckets alone, to save messages."""
# expect: DDP104 step 2 parameters 0.* 1.* 3.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def frugal(smallest, bucket):
    gradients = bucket.buffer()
    if gradients.numel() < smallest:
        done = torch.futures.Future()
        done.set_result(gradients)
        return done
    gradients = gradients / dist.get_world_size()
    return dist.all_reduce(gradients, async_op=True).get_future().then(lambda future: future.value()[0])


def main(smallest):
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 300), nn.Tanh(), nn.Linear(300, 1200)), bucket_cap_mb=0.1)
    model.register_comm_hook(smallest, frugal)  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(70 + dist.get_rank())
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(16, 6)).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main({"bug": 5000, "fixed": 0}[sys.argv[1]])
