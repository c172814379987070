# SPDX-License-Identifier: BSD-3-Clause
"""Noise and time steps are drawn by each rank between the batch and the model; the target of the loss is that noise. Weights are averaged."""
# command: parity
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Digits(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(9)
        self.images, self.classes = torch.rand(120, 1, 8, 8, generator=g), torch.randint(0, 10, (120,), generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i] * 2 - 1, "class": self.classes[i]}


class UNet(nn.Module):
    def __init__(self, width=8, steps=50):
        super().__init__()
        self.time_embed, self.class_embed = nn.Embedding(steps, width), nn.Embedding(11, width)
        self.down = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.up = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t, y):
        emb = self.time_embed(t) + self.class_embed(y)
        return self.up(F.silu(self.norm(self.down(x) + emb[:, :, None, None])))


@torch.no_grad()
def update_ema(ema, model, decay=0.99):
    for a, b in zip(ema.parameters(), model.parameters()):
        a.lerp_(b, 1 - decay)


def main():
    dist.init_process_group("gloo")
    rank, seed = dist.get_rank(), 1
    torch.manual_seed(seed)
    model = UNet()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    ddp = DDP(model)
    opt = torch.optim.AdamW(ddp.parameters(), lr=1e-4, weight_decay=0)
    alpha_bar = torch.cos(torch.linspace(0, 1.5, 50)) ** 2
    torch.manual_seed(seed * dist.get_world_size() + rank)
    data = Digits()
    for batch in DataLoader(data, batch_size=6, sampler=DistributedSampler(data), drop_last=True):
        x, y = batch["image"], batch["class"]
        y = torch.where(torch.rand(len(y)) < 0.1, torch.full_like(y, 10), y)  # without its class, for guidance
        t = torch.randint(0, 50, (x.shape[0],))
        noise = torch.randn_like(x)
        a = alpha_bar[t][:, None, None, None]
        loss = F.mse_loss(ddp(a.sqrt() * x + (1 - a).sqrt() * noise, t, y), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        update_ema(ema, model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
