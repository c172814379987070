# SPDX-License-Identifier: BSD-3-Clause
"""A bad batch on one rank is skipped by every rank, because they agree on it before backward."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def anybody(flag):
    flags = torch.tensor(float(flag))
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return flags.item() > 0


class Monitor:
    """The mean loss over the ranks, and when to stop, decided alike everywhere."""

    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def wants_to_stop(self, loss):
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean = mean.item() / dist.get_world_size()
        self.bad = 0 if mean < self.best else self.bad + 1
        self.best = min(self.best, mean)
        return self.bad >= self.patience


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
monitor = Monitor(patience=4)
generator = torch.Generator().manual_seed(rank)
for step in range(14):
    x = torch.randn(16, 8, generator=generator)
    if rank == 1 and step in (3, 7):
        x[0] = float("nan")
    loss = nn.functional.mse_loss(model(x), x.nan_to_num().sum(1, keepdim=True))
    if anybody(not torch.isfinite(loss)):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if monitor.wants_to_stop(loss):
        break
print(f"rank {rank} stopped after {step + 1} batches, loss {loss.item():.4f}")
dist.destroy_process_group()
