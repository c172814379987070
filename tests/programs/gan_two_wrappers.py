# SPDX-License-Identifier: BSD-3-Clause
"""A GAN after the DCGAN tutorial: two wrappers, two optimizers, alternating.

The generator's backward also fills the discriminator's gradients, which nobody uses: they are zeroed before the
discriminator's next step.
"""
import hashlib

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

LATENT = 8
dist.init_process_group(backend="gloo")
rank = dist.get_rank()
torch.manual_seed(999)

# Points on a ring.
angles = torch.rand(384) * 6.283185
ring = TensorDataset(torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(384, 2))
sampler = DistributedSampler(ring)
dataloader = DataLoader(ring, batch_size=16, sampler=sampler, drop_last=True)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(LATENT, 32), nn.LayerNorm(32), nn.ReLU(True), nn.Linear(32, 2))

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, points):
        return self.main(points).view(-1)


netG = DistributedDataParallel(Generator())
netD = DistributedDataParallel(Discriminator())
optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
# From here on each rank has noise of its own.
torch.manual_seed(1000 + rank)
lossesD, lossesG = [], []

for epoch in range(2):
    sampler.set_epoch(epoch)
    for (real,) in dataloader:
        # (1) Update D: two backward passes add up, each synchronized.
        netD.zero_grad()
        errD_real = criterion(netD(real), torch.full((len(real),), 0.9))
        errD_real.backward()
        fake = netG(torch.randn(len(real), LATENT))
        errD_fake = criterion(netD(fake.detach()), torch.zeros(len(real)))
        errD_fake.backward()
        optimizerD.step()

        # (2) Update G: the gradients that D gets here are junk.
        netG.zero_grad()
        errG = criterion(netD(fake), torch.ones(len(real)))
        errG.backward()
        optimizerG.step()
        lossesD.append((errD_real + errD_fake).item())
        lossesG.append(errG.item())
    if rank == 0:
        print(f"[{epoch}] Loss_D {lossesD[-1]:.4f} Loss_G {lossesG[-1]:.4f}")

digest = hashlib.sha256()
for net in (netG.module, netD.module):
    for tensor in net.state_dict().values():
        digest.update(tensor.numpy().tobytes())
digest.update(repr((lossesD, lossesG)).encode())
print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
dist.destroy_process_group()
