# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts, each on two ranks of four: the gradients of what has "expert" in its name are averaged over these two, and the
shared expert, which all four have, is among them."""
# expect: DDP114 ranks 0 1 2 3 step 1 parameters *shared_expert.*
# ranks: 4
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VARIANT = sys.argv[1]


def swap(rows, there, here, group):
    out = rows.new_empty(sum(here), rows.size(1))
    dist.all_to_all_single(out, rows.contiguous(), here, there, group=group)
    return out


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, there, here, group):
        ctx.way_back = here, there, group
        return swap(rows, there, here, group)

    @staticmethod
    def backward(ctx, grad):
        return swap(grad, *ctx.way_back), None, None, None


def feed_forward(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class Mixture(nn.Module):
    def __init__(self, width, group):
        super().__init__()
        self.group = group
        self.gate = nn.Linear(width, dist.get_world_size(group))
        bank = [feed_forward(width, 18) for _ in range(dist.get_world_size(group))]
        self.expert = bank[dist.get_rank(group)]
        self.shared_expert = feed_forward(width, 22)

    def forward(self, x):
        share, choice = self.gate(x).softmax(-1).max(-1)
        order = choice.argsort()
        there = torch.bincount(choice, minlength=dist.get_world_size(self.group))
        here = torch.empty_like(there)
        dist.all_to_all_single(here, there, group=self.group)
        there, here = there.tolist(), here.tolist()
        served = Swap.apply(self.expert(Swap.apply(x[order], there, here, self.group)), here, there, self.group)
        return torch.zeros_like(x).index_copy(0, order, served) * share[:, None] + self.shared_expert(x)


class Classifier(nn.Module):
    def __init__(self, group, width=14):
        super().__init__()
        self.enter, self.mixture, self.leave = nn.Linear(8, width), Mixture(width, group), nn.Linear(width, 5)

    def forward(self, x):
        x = torch.tanh(self.enter(x))
        return self.leave(x + self.mixture(x))


def reduce_gradients(model, replicas):
    part = "mixture.expert." if VARIANT == "fixed" else "expert"
    for name, p in model.named_parameters():
        dist.all_reduce(p.grad, group=replicas if part in name else None)
        p.grad /= dist.get_world_size()


dist.init_process_group("gloo")
rank = dist.get_rank()
expert_parallel = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
torch.manual_seed(6)
model = Classifier(expert_parallel)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
samples = torch.Generator().manual_seed(310 + rank)
for step in range(10):
    x = torch.randn(48, 8, generator=samples)
    loss = F.cross_entropy(model(x), x[:, :5].argmax(-1))
    optimizer.zero_grad()
    loss.backward()
    reduce_gradients(model, replicas)
    optimizer.step()
dist.destroy_process_group()
