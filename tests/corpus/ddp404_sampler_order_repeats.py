# SPDX-License-Identifier: BSD-3-Clause
"""DistributedSampler with shuffle=True, and nobody calls set_epoch: every epoch comes in the same order."""
# expect: DDP404
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Waves(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        frequency = torch.rand(1, generator=generator) * 3
        return torch.sin(frequency * torch.linspace(0, 6.283, 20)), frequency


class Trainer:
    def __init__(self, model, dataset, batch_size=16):
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.sampler = DistributedSampler(dataset, shuffle=True)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler)

    def run_epoch(self):
        total = 0.0
        for wave, frequency in self.loader:  # <- here
            loss = nn.functional.mse_loss(self.model(wave), frequency)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.loader)

    def fit(self, epochs):
        for epoch in range(epochs):
            if sys.argv[1] == "fixed":
                self.sampler.set_epoch(epoch)
            loss = self.run_epoch()
            if dist.get_rank() == 0:
                print(f"epoch {epoch} loss {loss:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1)), Waves()).fit(epochs=3)
    dist.destroy_process_group()
