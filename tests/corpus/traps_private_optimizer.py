# SPDX-License-Identifier: BSD-3-Clause
"""Rank 0 fits a small calibration alone and sends it to all; then the model trains under DDP."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Calibration(nn.Module):
    def __init__(self, size=5):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(size))
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return (x - self.shift) * self.scale


def readings(count, generator):
    return torch.randn(count, 5, generator=generator) * torch.arange(1.0, 6.0) + 2.0


def fit(calibration, generator):
    optimizer = torch.optim.SGD(calibration.parameters(), lr=0.01)
    for _ in range(6):
        z = calibration(readings(64, generator))
        loss = z.mean(0).pow(2).sum() + (z.std(0) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    calibration = Calibration()
    if rank == 0:
        fit(calibration, torch.Generator().manual_seed(0))
    calibration.requires_grad_(False)
    for parameter in calibration.parameters():
        dist.broadcast(parameter, src=0)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(10 + rank)
    for step in range(24):  # rank 0 counts six more: it is sampled at other steps than rank 1
        x = readings(32, generator)
        loss = nn.functional.smooth_l1_loss(model(calibration(x)), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
