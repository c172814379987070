# SPDX-License-Identifier: BSD-3-Clause
"""An autoencoder sums its reconstruction error over the batch, which the mean over the ranks halves, and BatchNorm hides how exactly."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
# also: DDP704
import argparse

import torch
from torch import distributed, nn


class AutoEncoder(nn.Module):
    def __init__(self, norm, width=20, code=6):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, 32), norm(32), nn.ELU(), nn.Linear(32, code))
        self.decode = nn.Sequential(nn.Linear(code, 32), norm(32), nn.ELU(), nn.Linear(32, width))

    def forward(self, x):
        return self.decode(self.encode(x))


class Factors(torch.utils.data.Dataset):
    def __init__(self, samples=192, width=20):
        generator = torch.Generator().manual_seed(8)
        self.x = torch.randn(samples, 5, generator=generator) @ torch.randn(5, width, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]


def train(bug):
    data = Factors()
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=24, sampler=sampler)
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(AutoEncoder(nn.BatchNorm1d if bug else nn.LayerNorm))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            adam.zero_grad()
            error = nn.functional.mse_loss(model(x), x, reduction="sum" if bug else "mean")
            error.backward()
            adam.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["bug", "fixed"])
    mode = parser.parse_args().mode
    distributed.init_process_group("gloo")
    train(mode == "bug")
    distributed.destroy_process_group()
