# SPDX-License-Identifier: BSD-3-Clause
"""Queries of each rank are compared with the keys of all ranks, which are gathered without gradients: no rank's keys learn anything."""
# expect: DDP116 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import cross_entropy, normalize


@torch.no_grad()
def everyones(keys):
    parts = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, keys.contiguous())  # <- here
    return torch.cat(parts, dim=0)


class Contrast:
    def __init__(self, width=10):
        self.net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, width)))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    def update(self, x, gather):
        queries, keys = normalize(self.net(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1).chunk(2)
        similar = queries.matmul(gather(keys).transpose(0, 1)).div(0.2)
        first = len(x) * dist.get_rank()
        loss = cross_entropy(similar, torch.arange(first, first + len(x)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(61)
    contrast = Contrast()
    torch.manual_seed(62 + dist.get_rank())
    gather = (lambda keys: torch.cat(all_gather(keys))) if sys.argv[1] == "fixed" else everyones
    for step in range(9):
        loss = contrast.update(torch.randn(12, 16), gather)
    print(f"{loss:.3f}")
    dist.destroy_process_group()
