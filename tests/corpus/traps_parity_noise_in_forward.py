# SPDX-License-Identifier: BSD-3-Clause
"""A variational autoencoder draws its latents in the forward, masks some of its inputs there, and mixes the batch's samples before."""
# command: parity
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class VAE(nn.Module):
    def __init__(self, features=12, latents=3):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, 24), nn.Tanh(), nn.Linear(24, 2 * latents))
        self.decode = nn.Sequential(nn.Linear(latents, 24), nn.Tanh(), nn.Linear(24, features))

    def forward(self, x):
        kept = torch.rand(x.size(0), x.size(1)).argsort(dim=1) < 9
        mean, log_variance = self.encode(x * kept).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decode(z), mean, log_variance


def loss_of(x, rebuilt, mean, log_variance):
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
    return (rebuilt - x).square().sum(1).mean() + divergence.mean()


dist.init_process_group("gloo")
torch.manual_seed(4)
data = TensorDataset(torch.randn(96, 12))
model = DDP(VAE())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(100 + dist.get_rank())
for epoch in range(2):
    sampler = DistributedSampler(data)
    sampler.set_epoch(epoch)
    for (x,) in DataLoader(data, batch_size=8, sampler=sampler):
        share = torch.distributions.Beta(0.8, 0.8).sample((len(x), 1))
        x = share * x + (1 - share) * x[torch.randperm(len(x))]
        loss = loss_of(x, *model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
