# SPDX-License-Identifier: BSD-3-Clause
"""The trainer asks the wrapper's module for the loss, by a method of its own, clips, and waits for all ranks before each step (DiffusionEdge's train_cond_ldm.py)."""
# expect: DDP101 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8))
        self.register_buffer("scale", torch.tensor(0.3))

    def forward(self, noisy, t):
        return self.net(torch.cat([noisy, t], 1))

    def training_step(self, batch):
        noise, t = torch.randn_like(batch), torch.rand(len(batch), 1)
        predicted = self((1 - t) * self.scale * batch + t * noise, t)
        loss = nn.functional.mse_loss(predicted, noise)
        return loss, {"train/loss": loss.item()}


class Trainer:
    def __init__(self, batches, inside):
        self.model = DistributedDataParallel(Denoiser())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.batches, self.inside = batches, inside

    def loss_of(self, batch):
        if self.inside:
            return self.model.module.training_step(batch)[0]  # <- here
        noise, t = torch.randn_like(batch), torch.rand(len(batch), 1)
        return nn.functional.mse_loss(self.model((1 - t) * 0.3 * batch + t * noise, t), noise)

    def train(self):
        for batch in self.batches:
            loss = self.loss_of(batch)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            dist.barrier()
            self.optimizer.step()
            self.optimizer.zero_grad()
            dist.barrier()


dist.init_process_group("gloo")
torch.manual_seed(7)
generator = torch.Generator().manual_seed(dist.get_rank())
trainer = Trainer([torch.randn(12, 8, generator=generator) for _ in range(6)], sys.argv[1] == "bug")
trainer.train()
dist.destroy_process_group()
