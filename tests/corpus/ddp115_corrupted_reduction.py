# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook packs gradients into fixed point, and one rank's build has fewer integer bits: large values saturate there."""
# expect: DDP115 ranks 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEP = 2.0**-16


class FixedPoint:
    def __init__(self, limit):
        self.limit = limit

    def unpack(self, packed):
        return (packed.to(torch.float32) * STEP).clamp(-self.limit, self.limit)


def fixed_point_mean(codec, bucket):
    packed = (bucket.buffer() / dist.get_world_size() / STEP).round().to(torch.int64)
    work = dist.all_reduce(packed, async_op=True).get_future()
    return work.then(lambda done: codec.unpack(done.value()[0]))


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(12)
model = DDP(nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1)))
narrow = rank == 1 and sys.argv[1] == "bug"
model.register_comm_hook(FixedPoint(0.02 if narrow else 128.0), fixed_point_mean)  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(50 + rank)
for _ in range(7):
    x = torch.randn(24, 10, generator=generator)
    optimizer.zero_grad()
    (model(x).squeeze(1) - 3 * x[:, 0] * x[:, 1]).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
