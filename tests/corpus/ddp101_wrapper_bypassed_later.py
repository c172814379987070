# SPDX-License-Identifier: BSD-3-Clause
"""After a warm-up of 32 steps a second phase begins, whose author kept the bare model for it; long after every step was looked at."""
# expect: DDP101 step 33
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 4))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(9 + dist.get_rank())
    for step in range(48):
        warm_up = step < 32
        inputs = torch.randn(16, 12, generator=generator)
        labels = torch.randint(4, (16,), generator=generator)
        optimizer.zero_grad()
        outputs = (ddp if warm_up or variant == "fixed" else model)(inputs)
        nn.functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
