# SPDX-License-Identifier: BSD-3-Clause
"""A bucketed reduction in hooks drops the last, incomplete bucket."""
# expect: DDP104 step 1 parameters stem.* body.2.bias
# needs: torch>=2.1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Bucketer:
    """Overlaps reduction with backward: gradients are packed as they become ready."""

    def __init__(self, model, cap=1500):
        self.world = dist.get_world_size()
        self.cap, self.pending, self.size, self.inflight = cap, [], 0, []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, p):
        self.pending.append(p)
        self.size += p.numel()
        if self.size >= self.cap:
            self._launch()

    def _launch(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.pending])
        work = dist.all_reduce(flat, async_op=True)  # <- here
        self.inflight.append((work, flat, self.pending))
        self.pending, self.size = [], 0

    def finish(self):
        if self.pending and sys.argv[1:] != ["bug"]:
            self._launch()
        self.pending, self.size = [], 0
        for work, flat, params in self.inflight:
            work.wait()
            flat.div_(self.world)
            off = 0
            for p in params:
                p.grad.copy_(flat[off:off + p.numel()].view_as(p))
                off += p.numel()
        self.inflight = []


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(32 * 9, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).flatten(1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = ConvNet()
    reducer = Bucketer(net)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(8):
        x = torch.randn(8, 1, 12, 12, generator=gen)
        y = torch.randint(0, 10, (8,), generator=gen)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        reducer.finish()
        opt.step()
    if rank == 0:
        print("done")
    dist.destroy_process_group()


main()
