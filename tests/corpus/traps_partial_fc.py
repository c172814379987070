# SPDX-License-Identifier: BSD-3-Clause
"""Partial FC: a wrapped backbone, its features gathered with their gradients, and class centres of each rank's own with an optimizer of their own."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CLASSES, SCALE = 24, 10


class AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()] * dist.get_world_size()


class DistCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, first):
        top = logits.amax(1, keepdim=True)
        dist.all_reduce(top, dist.ReduceOp.MAX)
        odds = (logits - top).exp()
        total = odds.sum(1, keepdim=True)
        dist.all_reduce(total)
        odds /= total
        mine = (labels >= first) & (labels < first + logits.size(1))
        at = ((labels - first) * mine)[:, None]
        chosen = odds.gather(1, at) * mine[:, None]
        dist.all_reduce(chosen)
        ctx.save_for_backward(odds, at, mine)
        return -chosen.clamp_min(1e-30).log().mean()

    @staticmethod
    def backward(ctx, grad):
        odds, at, mine = ctx.saved_tensors
        odds = odds.scatter_add(1, at, -mine[:, None].float())
        return odds * grad / len(odds), None, None


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    backbone = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)))
    own = torch.Generator().manual_seed(40 + rank)
    centres = nn.Parameter(torch.randn(CLASSES // world_size, 8, generator=own) * 0.1)
    opt_backbone, opt_centres = torch.optim.SGD(backbone.parameters(), 0.1), torch.optim.SGD([centres], 0.1)

    data = torch.Generator().manual_seed(1)
    y = torch.randint(0, CLASSES, (192,), generator=data)
    x = torch.randn(CLASSES, 16, generator=data)[y] + 0.2 * torch.randn(192, 16, generator=data)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset)
    for x, y in DataLoader(dataset, 8, sampler=sampler):
        features = AllGather.apply(F.normalize(backbone(x)))
        labels = [torch.empty_like(y) for _ in range(world_size)]
        dist.all_gather(labels, y)
        logits = SCALE * features @ F.normalize(centres).T
        loss = DistCrossEntropy.apply(logits, torch.cat(labels), rank * len(centres))
        opt_backbone.zero_grad()
        opt_centres.zero_grad()
        loss.backward()
        opt_backbone.step()
        opt_centres.step()
    dist.destroy_process_group()


main()
