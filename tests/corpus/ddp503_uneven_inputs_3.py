# SPDX-License-Identifier: BSD-3-Clause
"""Early stopping on each rank's own validation loss: one rank breaks out of the loop, the others train on."""
# expect: DDP503 ranks 1 step 7
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience, agree):
        self.patience, self.agree = patience, agree
        self.best, self.bad = float("inf"), 0

    def should_stop(self, loss):
        if self.agree:
            loss = torch.tensor(loss)
            dist.all_reduce(loss)
            loss = loss.item() / dist.get_world_size()
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience


def batch(rank, seed, size=32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=generator)
    noise = 3.0 * torch.randn(size, 1, generator=generator) if rank == 1 else 0.0
    return x, x.sum(1, keepdim=True) + noise


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stopping = EarlyStopping(patience=2, agree=sys.argv[1] == "fixed")
    for epoch in range(8):
        for i in range(2):
            x, y = batch(rank, seed=1000 * epoch + 10 * i + rank)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            x, y = batch(rank, seed=5 + epoch + rank, size=12)
            validation = nn.functional.mse_loss(model.module(x), y).item()
        print(f"rank {rank} epoch {epoch} validation loss {validation:.4f}")
        if stopping.should_stop(validation):
            print(f"rank {rank} stops")
            break
    dist.barrier()
    with torch.no_grad():
        errors = [nn.functional.mse_loss(model.module(x), y) for x, y in (batch(0, seed) for seed in range(1000))]
    print(f"rank {rank} error without noise {torch.stack(errors).mean():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
