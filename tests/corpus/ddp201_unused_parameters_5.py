# SPDX-License-Identifier: BSD-3-Clause
"""Generator and discriminator in one wrapper: each half-step uses one half of it, and freezes the other."""
# expect: DDP201 ranks 0 1 step 1 parameters discriminator.*
# never: DDP204
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))

    def forward(self, data, optimizer_idx):
        if optimizer_idx == 0:
            return self.discriminator(self.generator(data))
        return self.discriminator(data)


def toggle(model, optimizer_idx):
    model.module.generator.requires_grad_(optimizer_idx == 0)
    model.module.discriminator.requires_grad_(optimizer_idx == 1)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(GAN(), find_unused_parameters=sys.argv[1] == "fixed")  # <- here
optimizers = [
    torch.optim.Adam(model.module.generator.parameters(), lr=1e-3),
    torch.optim.Adam(model.module.discriminator.parameters(), lr=1e-3),
]
draw = torch.Generator().manual_seed(3 + dist.get_rank())
for step in range(6):
    for optimizer_idx, optimizer in enumerate(optimizers):
        toggle(model, optimizer_idx)
        noise = torch.randn(16, 4, generator=draw)
        if optimizer_idx == 0:
            logits = model(noise, optimizer_idx)
            loss = F.softplus(-logits).mean()
        else:
            angle = torch.rand(16, generator=draw) * 6.283
            real = torch.stack([angle.cos(), angle.sin()], dim=1)
            with torch.no_grad():
                fake = model.module.generator(noise)
            logits = model(torch.cat([real, fake]), optimizer_idx)
            loss = F.softplus(-logits[:16]).mean() + F.softplus(logits[16:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
