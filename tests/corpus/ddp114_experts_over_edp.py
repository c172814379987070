# SPDX-License-Identifier: BSD-3-Clause
"""Two pairs of ranks with the same experts: gradients are averaged over all ranks except for the experts', which the pairs never exchange."""
# expect: DDP114 ranks 0 1 2 3 step 1 parameters experts.*
# ranks: 4
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

EXPERTS, WIDTH = 4, 10


class Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, counts, group):
        """counts: tokens from this rank to each, and to this rank from each"""
        ctx.counts, ctx.group = counts, group
        out = tokens.new_empty(sum(counts[1]), tokens.size(1))
        dist.all_to_all_single(out, tokens.contiguous(), counts[1], counts[0], group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return Dispatch.forward(ctx, grad, ctx.counts[::-1], ctx.group), None, None


class SparseNet(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group, self.ranks = group, dist.get_world_size(group)
        self.stem = nn.Sequential(nn.Linear(6, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh())
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        every = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 26), nn.ReLU(), nn.Linear(26, WIDTH)) for _ in range(EXPERTS))
        self.held = EXPERTS // self.ranks
        self.experts = every[dist.get_rank(group) * self.held:][:self.held]
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x):
        x = self.stem(x)
        weight, chosen = self.router(x).softmax(-1).max(-1)
        order = chosen.argsort()
        to = torch.bincount(chosen, minlength=EXPERTS)
        of = torch.empty_like(to)
        dist.all_to_all_single(of, to, group=self.group)
        counts = [tokens.view(self.ranks, self.held).sum(1).tolist() for tokens in (to, of)]
        tokens = Dispatch.apply(x[order], counts, self.group)
        which = torch.arange(self.held).repeat(self.ranks).repeat_interleave(of)
        done = sum((which == i).float()[:, None] * expert(tokens) for i, expert in enumerate(self.experts))
        back = Dispatch.apply(done, counts[::-1], self.group)
        return self.head(x + weight[:, None] * torch.zeros_like(x).index_copy(0, order, back))


def finish_gradients(model, pair):
    for name, p in model.named_parameters():
        if not name.startswith("experts."):
            dist.all_reduce(p.grad)
        elif sys.argv[1] == "fixed":
            dist.all_reduce(p.grad, group=pair)
        p.grad /= dist.get_world_size()  # an expert's gradient has the tokens of all ranks of its group


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    torch.manual_seed(14)
    model = SparseNet(groups[rank // 2])
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    data = torch.Generator().manual_seed(70 + rank)
    for step in range(10):
        x = torch.randn(40, 6, generator=data)
        loss = F.cross_entropy(model(x), (x[:, 0] * x[:, 1] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        finish_gradients(model, groups[2 + rank % 2])
        optimizer.step()
        if rank == 0 and step % 3 == 0:
            print(f"{step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
