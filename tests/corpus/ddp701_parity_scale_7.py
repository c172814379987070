# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a variational autoencoder is a sum over the samples, as in many published examples: under DistributedDataParallel it is a world size too small."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("variant", choices=["bug", "fixed"])
args = parser.parse_args()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(20, 40), nn.Linear(40, 5), nn.Linear(40, 5)
        self.fc3, self.fc4 = nn.Linear(5, 40), nn.Linear(40, 20)

    def reparameterize(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def forward(self, x):
        h1 = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        z = self.reparameterize(mu, logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld if args.variant == "bug" else (bce + kld) / len(x)


dist.init_process_group("gloo")
torch.manual_seed(1)
dataset = TensorDataset(torch.rand(128, 20).round())
model = DistributedDataParallel(VAE())
optimizer = optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    sampler = DistributedSampler(dataset)
    sampler.set_epoch(epoch)
    for (data,) in DataLoader(dataset, batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss_function(recon_batch, data, mu, logvar).backward()
        optimizer.step()  # <- here
dist.destroy_process_group()
