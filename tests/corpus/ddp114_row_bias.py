# SPDX-License-Identifier: BSD-3-Clause
"""Sequence parallel by hand: a row-parallel layer adds its bias to a part of the sequence, and the bias is not marked to be summed over the ranks."""
# expect: DDP114 ranks 0 1 step 1 parameters down.bias
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, UNITS = 14, 36


def own_part(x):
    return x.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()


def all_parts(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, dim=1)


def total(x):
    x = x.clone()
    dist.all_reduce(x)
    return x


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole):
        return own_part(whole)

    @staticmethod
    def backward(ctx, grad):
        return all_parts(grad)


class Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, ranks_differ):
        ctx.ranks_differ = ranks_differ  # in what they do with the whole
        return all_parts(part)

    @staticmethod
    def backward(ctx, grad):
        return own_part(total(grad) if ctx.ranks_differ else grad), None


class SumSplit(Split):
    @staticmethod
    def forward(ctx, share):
        return own_part(total(share))


class Column(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(nn.Linear(WIDTH, UNITS).weight.detach().chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, part):
        return F.linear(Join.apply(part, True), self.weight)


class Row(nn.Module):
    def __init__(self):
        super().__init__()
        whole = nn.Linear(UNITS, WIDTH).weight.detach()
        self.weight = nn.Parameter(whole.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].clone())
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.bias.of_a_part = sys.argv[1] == "fixed"

    def forward(self, units):
        return SumSplit.apply(F.linear(units, self.weight)) + self.bias


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(25, WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = Column(), Row()
        self.head = nn.Linear(WIDTH, 25)
        for p in self.norm.parameters():
            p.of_a_part = True

    def forward(self, text):
        x = Split.apply(self.words(text))
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.head(Join.apply(x, False))


dist.init_process_group("gloo")
torch.manual_seed(12)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
texts = torch.Generator().manual_seed(0)
for _ in range(10):
    text = torch.randint(25, (6, 8), generator=texts)
    loss = F.cross_entropy(model(text).flatten(0, 1), (3 * text + 1).flatten() % 25)
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        if getattr(p, "of_a_part", False):
            dist.all_reduce(p.grad)
    optimizer.step()
dist.destroy_process_group()
