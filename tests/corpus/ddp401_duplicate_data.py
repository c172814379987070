# SPDX-License-Identifier: BSD-3-Clause
"""One seed for all ranks, and batches, time steps and noise are drawn after it: the ranks compute the same."""
# expect: DDP401 ranks 0 1 step 1
import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


def diffusion_loss(model, x):
    t = torch.rand(len(x), 1)
    noise = torch.randn_like(x)
    return nn.functional.mse_loss(model((1 - t) * x + t * noise, t), noise)


def main(args):
    dist.init_process_group("gloo")
    seed_everything(args.seed)
    angle = torch.linspace(0, 6.283, 160)
    dataset = TensorDataset(torch.stack([angle.cos(), angle.sin()], dim=1))
    model = DDP(Denoiser())
    if args.variant == "fixed":
        seed_everything(args.seed + dist.get_rank())
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, (x,) in enumerate(loader):
        loss = diffusion_loss(model, x)
        optimizer.zero_grad()
        loss.backward()  # <- here
        optimizer.step()
        print(f"rank {dist.get_rank()} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--seed", type=int, default=42)
    main(parser.parse_args())
