# SPDX-License-Identifier: BSD-3-Clause
"""Rank 0 draws a preview with the wrapper after the first step. BatchNorm's buffers are broadcast there, and the other rank's second training
forward broadcasts the new buckets, too: Gloo aborts over the size of a message."""
# expect: DDP505 ranks 0 step 1..2
# also: DDP405
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.BatchNorm1d(8), nn.SiLU(), nn.Conv1d(8, 1, 3, padding=1))

    def forward(self, noisy):
        return noisy - self.layers(noisy)


def preview(model, noisy):
    model.eval()
    with torch.no_grad():
        clean = model(noisy[:1])  # <- here
    model.train()
    print(f"mean of a preview: {clean.mean():.4f}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    signals = torch.Generator().manual_seed(7 + rank)
    for iteration in range(6):
        signal = torch.randn(8, 1, 32, generator=signals).cumsum(2)
        noisy = signal + torch.randn(8, 1, 32, generator=signals)
        loss = nn.functional.mse_loss(model(noisy), signal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and iteration % 100 == 0:
            preview(model if sys.argv[1] == "bug" else model.module, noisy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
