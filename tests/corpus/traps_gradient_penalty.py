# SPDX-License-Identifier: BSD-3-Clause
"""Wasserstein critic: the penalty by autograd.grad with create_graph, then one backward of the sum."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, real, fake, mixed):
        penalized = self.layers(mixed)
        gradient, = torch.autograd.grad(penalized.sum(), mixed, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).pow(2).mean()
        return self.layers(fake).mean() - self.layers(real).mean() + 10 * penalty


dist.init_process_group("gloo")
torch.manual_seed(0)
critic = DDP(Critic())
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
generator = torch.Generator().manual_seed(7 + dist.get_rank())
for step in range(10):
    real = torch.randn(24, 2, generator=generator) + torch.tensor([2.0, 0.0])
    fake = torch.randn(24, 2, generator=generator)
    share = torch.rand(24, 1, generator=generator)
    mixed = (share * real + (1 - share) * fake).requires_grad_(True)
    loss = critic(real, fake, mixed)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
