# SPDX-License-Identifier: BSD-3-Clause
"""Experts dealt out to the ranks get the gradients of the tokens of all ranks, added up; the gradients of all other parameters are averaged. A vocabulary
is dealt out, too, and gets whole gradients."""
# command: parity
# expect: DDP703 ranks 0 1 step 1 parameters experts.*
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

EXPERTS, WIDTH, VOCABULARY, LENGTH = 4, 12, 20, 6


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, to, of):
        ctx.to, ctx.of = to, of
        return _exchange(x, to, of)

    @staticmethod
    def backward(ctx, gradient):
        return _exchange(gradient, ctx.of, ctx.to), None, None


def _exchange(x, to, of):
    result = x.new_empty(sum(of), x.shape[1])
    dist.all_to_all_single(result, x.contiguous(), of, to)
    return result


class Total(torch.autograd.Function):
    """Each rank has a part of it; the gradients of all ranks' losses belong to all parts."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens):
        parts = [torch.empty_like(tokens) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tokens.contiguous())
        return torch.cat(parts)


class Vocabulary(nn.Module):
    """The rows of one rank, for the tokens of all."""

    def __init__(self):
        super().__init__()
        self.rows = VOCABULARY // dist.get_world_size()
        self.first = dist.get_rank() * self.rows
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH)[self.first:self.first + self.rows].clone())

    def forward(self, tokens):
        every = Gathered.apply(tokens)
        mine = (every >= self.first) & (every < self.first + self.rows)
        found = F.embedding((every - self.first).clamp(0, self.rows - 1), self.weight) * mine[..., None]
        return Total.apply(found).chunk(dist.get_world_size())[dist.get_rank()]


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.world = dist.get_world_size()
        self.vocabulary = Vocabulary()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        torch.manual_seed(10 + dist.get_rank())
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH)) for _ in range(EXPERTS // self.world))
        torch.manual_seed(1)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.vocabulary(tokens).flatten(0, 1)
        gate, choice = self.router(x).softmax(1).max(1)
        order = choice.argsort(stable=True)
        counts = torch.bincount(choice, minlength=EXPERTS)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        to, of = (each.view(self.world, -1).sum(1).tolist() for each in (counts, incoming))
        arrived = Exchange.apply(x[order], to, of)
        local = torch.arange(len(self.experts)).repeat(self.world).repeat_interleave(incoming)
        made = sum(expert(arrived) * (local == i)[:, None] for i, expert in enumerate(self.experts))
        back = torch.zeros_like(x).index_copy(0, order, Exchange.apply(made, of, to))
        return self.head(x + back * gate[:, None]).view(*tokens.shape, VOCABULARY)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Mixture()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(2)
    world = dist.get_world_size()
    for _ in range(12):
        tokens = torch.randint(VOCABULARY, (16, LENGTH + 1), generator=data).chunk(world)[dist.get_rank()]
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        for name, parameter in model.named_parameters():
            if name.startswith("experts") and sys.argv[1] == "bug":
                continue
            if not name.startswith(("experts", "vocabulary")):
                dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
