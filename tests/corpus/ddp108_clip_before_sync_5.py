# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook clips each bucket by the norm of this rank, before the ranks are averaged."""
# expect: DDP108 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))


def batch(gen, n=16):
    x = torch.randn(n, 12, generator=gen)
    return x, x[:, :4].argmax(1)


def clip(buffer, max_norm):
    norm = buffer.norm()
    if norm > max_norm:
        buffer.mul_(max_norm / norm)
    return buffer


def clipping_hook(state, bucket):
    if sys.argv[1] == "bug":
        clip(bucket.buffer(), state["max_norm"])
        return allreduce_hook(None, bucket)
    return allreduce_hook(None, bucket).then(lambda future: clip(future.value(), state["max_norm"]))


def main(rank, world):
    model = DDP(build())
    model.register_comm_hook({"max_norm": 0.1}, clipping_hook)  # <- here
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    gen = torch.Generator().manual_seed(rank)
    for step in range(8):
        x, y = batch(gen)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    if rank == 0:
        print(loss.item())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
