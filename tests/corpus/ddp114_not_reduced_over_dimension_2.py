# SPDX-License-Identifier: BSD-3-Clause
"""Context parallel: each rank of a pair has half of each sequence, and gradients are averaged over the data-parallel ranks only."""
# expect: DDP114 ranks 0 1 2 3 step 1
# ranks: 4
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn


class GatherSequence(torch.autograd.Function):
    """All parts of the sequence; each rank's gradient of its own part, from all of them."""

    @staticmethod
    def forward(ctx, part, group):
        ctx.group = group
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(dist.get_world_size(ctx.group), dim=1)[dist.get_rank(ctx.group)], None


class Attention(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.group = group
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        keys = GatherSequence.apply(self.key(x), self.group)
        values = GatherSequence.apply(self.value(x), self.group)
        return torch.softmax(self.query(x) @ keys.transpose(1, 2) / 4, dim=-1) @ values


class Tagger(nn.Module):
    def __init__(self, group, width=16):
        super().__init__()
        self.inner = nn.Linear(6, width)
        self.attention = Attention(width, group)
        self.outer = nn.Linear(width, 3)

    def forward(self, x):
        x = torch.relu(self.inner(x))
        return self.outer(x + self.attention(x))


rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
context = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
torch.manual_seed(21)
model = Tagger(context)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sequences = torch.Generator().manual_seed(70 + rank // 2)
for _ in range(8):
    whole = torch.randn(4, 10, 6, generator=sequences)
    part = whole.chunk(2, dim=1)[rank % 2]
    logits = model(part)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), part[..., :3].argmax(-1).flatten())
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        if sys.argv[1] == "fixed":
            dist.all_reduce(p.grad)
            p.grad /= 4
        else:
            dist.all_reduce(p.grad, group=data)
            p.grad /= 2
    optimizer.step()
dist.destroy_process_group()
