# SPDX-License-Identifier: BSD-3-Clause
"""Two wrappers with different process groups: a layer split over two ranks, replicated over the other two, beside a model on all four."""
# ranks: 4
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class SplitMlp(nn.Module):
    def __init__(self, group, part):
        super().__init__()
        torch.manual_seed(100 + part)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6, bias=False)
        self.group = group

    def forward(self, x):
        return SumOverRanks.apply(self.down(torch.tanh(self.up(x))), self.group)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    split = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    copies = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    torch.manual_seed(0)
    critic = DDP(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1)))
    actor = DDP(SplitMlp(split, rank % 2), process_group=copies)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (actor, critic)]
    data = torch.Generator().manual_seed(7 + rank // 2)
    others = torch.Generator().manual_seed(30 + rank)
    for _ in range(8):
        x = torch.randn(9, 6, generator=data)
        for optimizer in optimizers:
            optimizer.zero_grad()
        (actor(x) - x.flip(1)).square().mean().backward()
        y = torch.randn(9, 6, generator=others)
        (critic(y).squeeze(1) - y.sum(1)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
