# SPDX-License-Identifier: BSD-3-Clause
"""Domain adaptation on several sites: the encoder's gradients are averaged by hand; each site has a critic of its own, drawn from its own seed, of which
nothing is exchanged. Whether the critics should be one, nobody can tell from outside."""
# verdict: inconclusive
import torch
import torch.distributed as dist
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(11, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 8))

    def forward(self, x):
        return self.layers(x)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, z):
        return self.score(z).squeeze(1)


def average(parameters):
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, mean in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad.copy_(mean.view_as(p))


dist.init_process_group("gloo")
site = dist.get_rank()
torch.manual_seed(12)
encoder = Encoder()
torch.manual_seed(1200 + site)
critic = Critic()
of_encoder = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
of_critic = torch.optim.SGD(critic.parameters(), lr=5e-2)
draw = torch.Generator().manual_seed(90 + site)
for iteration in range(15):
    source, target = torch.randn(24, 11, generator=draw), torch.randn(24, 11, generator=draw) * 1.5 + site
    both = torch.cat([source, target])
    is_source = torch.cat([torch.ones(24), torch.zeros(24)])
    with torch.no_grad():
        codes = encoder(both)
    of_critic.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(critic(codes), is_source).backward()
    of_critic.step()
    of_encoder.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(critic(encoder(both)), 1 - is_source).backward()
    average(list(encoder.parameters()))
    of_encoder.step()
dist.destroy_process_group()
