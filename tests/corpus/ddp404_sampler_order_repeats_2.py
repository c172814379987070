# SPDX-License-Identifier: BSD-3-Clause
"""Each epoch makes its loader and sampler anew, always from the same seed: every epoch comes in the same order."""
# expect: DDP404
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Windows(Dataset):
    def __init__(self, n=64, w=12):
        self.series = torch.sin(torch.arange(n + w + 1) * 0.3) + 0.1 * torch.randn(n + w + 1, generator=torch.Generator().manual_seed(0))
        self.n, self.w = n, w

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.series[i:i + self.w].unsqueeze(-1), self.series[i + self.w]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1]).squeeze(1)


def get_loader(dataset, epoch):
    sampler = DistributedSampler(dataset, shuffle=True, seed=0 if sys.argv[1] == "bug" else epoch)
    return DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Windows()
    model = DDP(Forecaster())
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(3):
        total = 0.0
        for x, y in get_loader(data, epoch):  # <- here
            loss = F.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        if dist.get_rank() == 0:
            print(epoch, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
