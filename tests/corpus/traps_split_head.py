# SPDX-License-Identifier: BSD-3-Clause
"""A frozen backbone, classes split over the ranks: each has the centres of some, and the softmax over all of them is an autograd function."""
import torch, torch.distributed as dist
from torch import nn


class SplitCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, first):
        top = logits.amax(1)
        dist.all_reduce(top, dist.ReduceOp.MAX)
        odds = (logits - top[:, None]).exp()
        total = odds.sum(1)
        dist.all_reduce(total)
        mine = (targets >= first) & (targets < first + logits.shape[1])
        at = (targets - first).clamp(0, logits.shape[1] - 1)[:, None]
        chosen = (logits - top[:, None]).gather(1, at)[:, 0] * mine
        dist.all_reduce(chosen)
        ctx.save_for_backward(odds / total[:, None], at, mine)
        return (total.log() - chosen).mean()

    @staticmethod
    def backward(ctx, grad):
        p, at, mine = ctx.saved_tensors
        g = p.clone()
        g.scatter_add_(1, at, -mine[:, None].float())
        return grad * g / len(g), None, None


class Head(nn.Module):
    def __init__(self, width, classes, rank):
        super().__init__()
        self.first = rank * classes
        self.weight = nn.Parameter(torch.randn(classes, width, generator=torch.Generator().manual_seed(50 + rank)) * 0.1)
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x, y):
        return SplitCrossEntropy.apply(x @ self.weight.t() + self.bias, y, self.first)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).requires_grad_(False)
    head = Head(8, 24 // world, rank)
    opt = torch.optim.SGD(head.parameters(), lr=0.5)
    data = torch.Generator().manual_seed(1)
    for _ in range(12):
        y = torch.randint(0, 24, (16,), generator=data)
        x = torch.randn(16, 16, generator=data) + y[:, None] / 8
        with torch.no_grad():
            features = backbone(x)
        opt.zero_grad()
        head(features, y).backward()
        opt.step()
    dist.destroy_process_group()


main()
