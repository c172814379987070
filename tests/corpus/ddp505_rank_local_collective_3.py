# SPDX-License-Identifier: BSD-3-Clause
"""Metrics are summed over all ranks in a process group of their own, on rank 0 only."""
# expect: DDP505 ranks 0 step 4..5
import datetime
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class VAE(nn.Module):
    def __init__(self, dim=64, latent=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(dim, 48), nn.ELU())
        self.mu, self.logvar = nn.Linear(48, latent), nn.Linear(48, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 48), nn.ELU(), nn.Linear(48, dim))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-6, 6)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


class Metrics:
    """Sums over steps, averaged over all ranks in a CPU group of their own."""

    def __init__(self):
        self.group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=600))
        self.reset()

    def reset(self):
        self.total, self.n = {}, 0

    def add(self, **values):
        for k, v in values.items():
            self.total[k] = self.total.get(k, 0.0) + v.item()
        self.n += 1

    def summary(self):
        keys = sorted(self.total)
        t = torch.tensor([self.total[k] for k in keys] + [float(self.n)])
        dist.all_reduce(t, group=self.group)  # <- here
        self.reset()
        return {k: (t[i] / t[-1]).item() for i, k in enumerate(keys)}


def factors(gen, n=32):
    base = torch.Generator().manual_seed(1)
    mix = torch.randn(4, 64, generator=base)
    return torch.tanh(torch.randn(n, 4, generator=gen) @ mix)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    rank = dist.get_rank()
    torch.manual_seed(0)
    vae = DDP(VAE())
    opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
    metrics = Metrics()
    torch.manual_seed(rank + 1)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, 13):
        x = factors(gen)
        recon, mu, logvar = vae(x)
        mse = F.mse_loss(recon, x, reduction="none").sum(1).mean()
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        opt.zero_grad()
        (mse + min(1.0, step / 8) * kl).backward()
        opt.step()
        metrics.add(mse=mse, kl=kl)
        if step % 4 == 0 and (rank == 0 or sys.argv[1] == "fixed"):
            summary = metrics.summary()
            if rank == 0:
                print(f"step {step}", summary, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
