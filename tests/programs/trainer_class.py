# SPDX-License-Identifier: BSD-3-Clause
"""A trainer of one's own, with callbacks: checkpoint on rank 0, validation of the inner module under no_grad."""
import hashlib
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


class Checkpoint:
    def __init__(self, path):
        self.path = path

    def on_epoch_end(self, trainer):
        if trainer.rank == 0:
            torch.save({"model": trainer.model.module.state_dict(), "optimizer": trainer.optimizer.state_dict(),
                        "epoch": trainer.epoch}, self.path)
        dist.barrier()


class Validate:
    def __init__(self, loader):
        self.loader = loader
        self.best = float("inf")

    @torch.no_grad()
    def on_epoch_end(self, trainer):
        # Not through the wrapper: nothing is to be synchronized.
        module = trainer.model.module
        module.eval()
        total = sum(nn.functional.mse_loss(module(x), y, reduction="sum") for x, y in self.loader)
        self.best = min(self.best, total.item())
        module.train()


class Trainer:
    def __init__(self, model, optimizer, loader, callbacks):
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(model)
        self.optimizer = optimizer
        self.loader = loader
        self.callbacks = callbacks
        self.losses = []
        self.epoch = 0

    def training_step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x), y)

    def fit(self, epochs):
        for self.epoch in range(self.epoch, self.epoch + epochs):
            self.loader.sampler.set_epoch(self.epoch)
            for batch in self.loader:
                loss = self.training_step(batch)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
            for callback in self.callbacks:
                callback.on_epoch_end(self)


def main():
    dist.init_process_group("gloo", init_method="env://")
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    x = torch.from_numpy(np.random.randn(320, 10).astype("float32"))
    y = torch.sin(x.sum(1, keepdim=True))
    train, held_out = random_split(TensorDataset(x, y), [256, 64])
    loader = DataLoader(train, batch_size=16, sampler=DistributedSampler(train))
    model = nn.Sequential(nn.Linear(10, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 1))
    validate = Validate(DataLoader(held_out, batch_size=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Trainer(model, optimizer, loader, [validate, Checkpoint("trainer_class.pt")])
    trainer.fit(2)

    # Resume from the file that rank 0 wrote.
    saved = torch.load("trainer_class.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    trainer.epoch = saved["epoch"] + 1
    trainer.fit(1)
    dist.barrier()
    if trainer.rank == 0:
        os.remove("trainer_class.pt")

    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr((trainer.losses, validate.best)).encode())
    print(f"digest rank {trainer.rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
