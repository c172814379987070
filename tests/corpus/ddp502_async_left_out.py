# SPDX-License-Identifier: BSD-3-Clause
"""A count is summed in the background and waited for a step later; a rank without positive samples leaves it out."""
# expect: DDP502 step 5..6
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Meter:
    def __init__(self):
        self.pending = None
        self.total = 0

    def add(self, count, everywhere):
        if self.pending is not None:
            handle, value = self.pending
            handle.wait()
            self.total += int(value)
            self.pending = None
        if count or everywhere:
            value = torch.tensor(float(count))
            self.pending = dist.all_reduce(value, async_op=True), value  # <- here


def main(variant):
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)), process_group=dist.new_group())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    positives = Meter()
    for step in range(10):
        x = torch.randn(16, 8, generator=generator)
        y = (x[:, 0] > 0).float()
        if rank == 1 and step == 4:
            x[:, 0], y = -x[:, 0].abs(), torch.zeros(16)
        loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        positives.add(int(y.sum()), everywhere=variant != "bug")
    positives.add(0, everywhere=False)
    if rank == 0:
        print(f"loss {loss.item():.4f}, positives {positives.total}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fixed")
