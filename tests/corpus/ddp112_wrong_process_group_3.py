# SPDX-License-Identifier: BSD-3-Clause
"""Two islands of two ranks: DistributedDataParallel within an island, and every fourth step an outer optimizer on what each island moved. Its mean
is taken within the island once more, so the islands never meet."""
# expect: DDP112
# ranks: 4
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EVERY = 4


def make_groups(rank, size, island):
    islands = [dist.new_group(list(range(begin, begin + island))) for begin in range(0, size, island)]
    peers = [dist.new_group(list(range(place, size, island))) for place in range(island)]
    return islands[rank // island], peers[rank % island]


@torch.no_grad()
def outer_step(model, anchor, optimizer, group):
    for parameter, start in zip(model.parameters(), anchor):
        moved = start - parameter
        dist.all_reduce(moved, group=group)
        parameter.grad = moved / dist.get_world_size(group)
        parameter.copy_(start)
    optimizer.step()
    optimizer.zero_grad()
    for parameter, start in zip(model.parameters(), anchor):
        start.copy_(parameter)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    island, peers = make_groups(rank, dist.get_world_size(), 2)
    torch.manual_seed(17)
    model = nn.Sequential(nn.Linear(10, 20), nn.ELU(), nn.Linear(20, 10))
    ddp = DDP(model, process_group=island)
    inner = torch.optim.Adam(model.parameters(), lr=4e-3)
    outer = torch.optim.SGD(model.parameters(), lr=0.6, momentum=0.9, nesterov=True)
    anchor = [parameter.detach().clone() for parameter in model.parameters()]
    data = torch.Generator().manual_seed(rank)
    for step in range(1, 3 * EVERY + 1):
        x = torch.randn(12, 10, generator=data)
        nn.functional.huber_loss(ddp(x), x.flip(1)).backward()
        inner.step()
        inner.zero_grad()
        if step % EVERY == 0:
            outer_step(model, anchor, outer, island if sys.argv[1] == "bug" else peers)
    dist.destroy_process_group()
