# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive gradient clipping, row by row, before the gradients are averaged."""
# expect: DDP108 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn


def unitwise_norm(t):
    return t.flatten(1).norm(dim=1).view(-1, *[1] * (t.ndim - 1)) if t.ndim > 1 else t.norm()


@torch.no_grad()
def agc(params, clip=0.02, eps=1e-3):
    for p in params:
        limit = unitwise_norm(p).clamp(min=eps) * clip
        norm = unitwise_norm(p.grad)
        scale = torch.where(norm > limit, limit / norm.clamp(min=1e-6), torch.ones_like(norm))
        p.grad.mul_(scale)


@torch.no_grad()
def average(params):
    flat = torch._utils._flatten_dense_tensors([p.grad for p in params])
    dist.all_reduce(flat)  # <- here
    flat /= dist.get_world_size()
    for p, g in zip(params, torch._utils._unflatten_dense_tensors(flat, [p.grad for p in params])):
        p.grad.copy_(g)


class NFBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x + self.gain * self.conv(torch.relu(x))


class Step:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.params = [p for p in model.parameters() if p.requires_grad]

    def __call__(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        if sys.argv[1:] == ["bug"]:
            agc(self.params)
        average(self.params)
        if sys.argv[1:] != ["bug"]:
            agc(self.params)
        self.opt.step()
        return loss.detach()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), NFBlock(8), NFBlock(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    step = Step(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True))
    gen = torch.Generator().manual_seed(33 + dist.get_rank())
    for _ in range(8):
        step(torch.randn(6, 3, 8, 8, generator=gen), torch.randint(0, 4, (6,), generator=gen))
    dist.destroy_process_group()


main()
