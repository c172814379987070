# SPDX-License-Identifier: BSD-3-Clause
"""After a spike of the loss the scale is halved by hand, and each rank looks at its own loss."""
# expect: DDP403 step 5
# needs: torch>=2.3
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SpikeGuard:
    def __init__(self, scaler, limit, agree):
        self.scaler, self.limit, self.agree = scaler, limit, agree

    def update(self, loss):
        loss = loss.detach().clone()
        if self.agree:
            dist.all_reduce(loss, op=dist.ReduceOp.MAX)
        if loss.item() > self.limit:
            self.scaler.update(self.scaler.get_scale() / 2)
        else:
            self.scaler.update()


def make_batch(rank, step, generator):
    x = torch.randn(16, 6, generator=generator)
    y = x.sum(1, keepdim=True)
    if rank == 1 and step == 4:
        y[3] = 60.0  # an outlier
    return x, y


def main(variant):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    guard = SpikeGuard(scaler, limit=50.0, agree=variant == "fixed")
    generator = torch.Generator().manual_seed(33 + rank)
    for step in range(1, 11):
        x, y = make_batch(rank, step, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # <- here
        guard.update(loss)
        print(f"rank {rank} step {step} loss {loss.item():.3f} scale {scaler.get_scale():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
