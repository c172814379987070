# SPDX-License-Identifier: BSD-3-Clause
"""The generator gets as many latents as BATCH says, however many images came: one process cannot be given the ranks' latents beside joined batches."""
# command: parity
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH, LATENTS = 8, 3

dist.init_process_group("gloo")
torch.manual_seed(2)
images = TensorDataset(torch.randn(80, 10))
generator = DDP(nn.Sequential(nn.Linear(LATENTS, 20), nn.ReLU(), nn.Linear(20, 10), nn.Tanh()))
encoder = DDP(nn.Linear(10, LATENTS))
optimizer = torch.optim.RMSprop([*generator.parameters(), *encoder.parameters()], lr=1e-3)
torch.manual_seed(50 + dist.get_rank())
for (real,) in DataLoader(images, batch_size=BATCH, sampler=DistributedSampler(images), drop_last=True):
    latents = torch.randn(BATCH, LATENTS)
    fake = generator(latents)
    loss = nn.functional.mse_loss(encoder(fake), latents) + nn.functional.l1_loss(generator(encoder(real)), real)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
