# SPDX-License-Identifier: BSD-3-Clause
"""Two epochs inside Join, in which rank 1 has more batches: afterwards the ranks have made different numbers of steps."""
# needs: torch>=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = DDP(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 5)))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    g = torch.Generator().manual_seed(rank)
    for epoch in range(2):
        with Join([net]):
            for _ in range(5 + 2 * rank):
                x = torch.randn(6, 5, generator=g)
                opt.zero_grad()
                (net(x) - x).pow(2).mean().backward()
                opt.step()
    dist.destroy_process_group()


main()
