# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts: a loop over all parameters averages the gradients of experts that differ from rank to rank."""
# expect: DDP112 ranks 0 1 step 1 parameters layer.expert.*
import sys

import torch
import torch.distributed as dist
from torch import nn


class Route(torch.autograd.Function):
    """Rows to the ranks that they are for; backwards their gradients to the ranks that they are from."""

    @staticmethod
    def forward(ctx, rows, given, taken):
        ctx.given, ctx.taken = given, taken
        arrived = rows.new_empty(sum(taken), rows.shape[-1])
        dist.all_to_all_single(arrived, rows.contiguous(), taken, given)
        return arrived

    @staticmethod
    def backward(ctx, gradient):
        returned = gradient.new_empty(sum(ctx.given), gradient.shape[-1])
        dist.all_to_all_single(returned, gradient.contiguous(), ctx.given, ctx.taken)
        return returned, None, None


class SparseLayer(nn.Module):
    def __init__(self, size, rank, world):
        super().__init__()
        self.choose = nn.Linear(size, world)
        experts = [nn.Sequential(nn.Linear(size, 30), nn.SiLU(), nn.Linear(30, size)) for _ in range(world)]
        self.expert = experts[rank]

    def forward(self, x):
        odds = self.choose(x).softmax(dim=1)
        best = odds.argmax(dim=1)
        order = torch.argsort(best)
        given = torch.bincount(best, minlength=dist.get_world_size())
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given)
        given, taken = given.tolist(), taken.tolist()
        result = Route.apply(self.expert(Route.apply(x[order], given, taken)), taken, given)
        return torch.empty_like(result).index_copy(0, order, result) * odds.gather(1, best[:, None])


class Forecast(nn.Module):
    def __init__(self, rank, world, size=11):
        super().__init__()
        self.series = nn.Linear(7, size)
        self.layer = SparseLayer(size, rank, world)
        self.next = nn.Linear(size, 1)

    def forward(self, x):
        x = self.series(x).tanh()
        return self.next(x + self.layer(x))


def synchronize(model, world):
    for name, parameter in model.named_parameters():
        if VARIANT == "bug" or ".expert." not in name:
            dist.all_reduce(parameter.grad)
        parameter.grad.div_(world)


VARIANT = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(32)
model = Forecast(rank, world)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
history = torch.Generator().manual_seed(5 + rank)
for _ in range(10):
    x = torch.randn(36, 7, generator=history)
    loss = nn.functional.mse_loss(model(x), x[:, :2].prod(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    synchronize(model, world)
    optimizer.step()
dist.destroy_process_group()
