# SPDX-License-Identifier: BSD-3-Clause
"""Gradient accumulation: three micro-batches under no_sync(), the fourth synchronizes; clipped, then one step."""
import contextlib
import hashlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4
STEPS = 14


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(3))
        self.out = nn.Linear(24, 2)

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.out(x)


def micro_batches(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    while True:
        x = torch.randn(8, 24, generator=generator)
        yield x, torch.stack([x.mean(1), x.abs().mean(1)], dim=1)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DDP(Regressor(), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = micro_batches(rank)
    losses, norms = [], []

    for step in range(STEPS):
        for micro in range(ACCUMULATE):
            last = micro == ACCUMULATE - 1
            with contextlib.nullcontext() if last else model.no_sync():
                x, y = next(batches)
                loss = F.mse_loss(model(x), y) / ACCUMULATE
                loss.backward()
        losses.append(loss.item() * ACCUMULATE)
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)))
        optimizer.step()
        optimizer.zero_grad()

    mean = torch.tensor(losses[-1])
    dist.reduce(mean, dst=0)
    if rank == 0:
        print(f"last loss {mean.item() / world_size:.5f}, gradient norm {norms[-1]:.5f}")

    model.eval()
    with torch.no_grad():
        x = torch.randn(4096, 24, generator=torch.Generator().manual_seed(99))
        error = F.mse_loss(model.module(x), torch.stack([x.mean(1), x.abs().mean(1)], dim=1)).item()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(norms).encode())
    digest.update(repr((losses, error)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
