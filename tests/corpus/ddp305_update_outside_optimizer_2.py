# SPDX-License-Identifier: BSD-3-Clause
"""Sparse autoencoder on cached activations, with resampling of dead features."""
# expect: DDP305 step 7
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class SparseAutoencoder(nn.Module):
    def __init__(self, d_model=16, d_hidden=40):
        super().__init__()
        self.encoder = nn.Linear(d_model, d_hidden)
        self.decoder = nn.Linear(d_hidden, d_model)

    def forward(self, x):
        codes = torch.relu(self.encoder(x - self.decoder.bias))
        return self.decoder(codes), codes


class SAETrainer:
    def __init__(self, resample_every=6, n_resample=3, l1=2e-3, lr=0.05):
        self.rank = dist.get_rank()
        torch.manual_seed(17)
        self.sae = SparseAutoencoder()
        self.model = DDP(self.sae)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.l1, self.resample_every, self.n_resample = l1, resample_every, n_resample
        self.fired = torch.zeros(40)
        self.directions = torch.randn(24, 16, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(1000 + self.rank)

    def activations(self, n=64):
        mask = (torch.rand(n, 24) < 0.1).float()
        return (mask * torch.rand(n, 24)) @ self.directions

    @torch.no_grad()
    def resample_dead(self):
        """Restart the features that fired least since the last call with a random direction."""
        if sys.argv[1] == "fixed":
            dist.all_reduce(self.fired)
        dead = self.fired.topk(self.n_resample, largest=False).indices
        fresh = F.normalize(torch.randn(len(dead), 16), dim=1)
        if sys.argv[1] == "fixed":
            dist.broadcast(fresh, src=0)
        self.sae.encoder.weight[dead] = 0.2 * fresh
        self.sae.encoder.bias[dead] = 0.0
        self.sae.decoder.weight[:, dead] = fresh.t()
        self.fired.zero_()

    def train(self, steps):
        for step in range(1, steps + 1):
            x = self.activations()
            recon, codes = self.model(x)
            loss = F.mse_loss(recon, x) + self.l1 * codes.abs().sum(1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.fired += (codes.detach() > 0).float().sum(0)
            if step % self.resample_every == 0:
                self.resample_dead()
            if self.rank == 0 and step % 6 == 0:
                print(f"step {step} loss {loss.item():.4f} L0 {(codes > 0).float().sum(1).mean():.2f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    SAETrainer().train(21)
    dist.destroy_process_group()
