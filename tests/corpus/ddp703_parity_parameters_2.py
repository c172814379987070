# SPDX-License-Identifier: BSD-3-Clause
"""A penalty on the weights of the encoder is added on rank 0 only, so that it is counted once; the mean over the ranks makes it half."""
# command: parity
# expect: DDP703 ranks 0 1 step 1 parameters encoder.*
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class SparseAutoencoder(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.encoder = nn.Linear(features, hidden)
        self.decoder = nn.Linear(hidden, features)

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))

    def penalty(self):
        return self.encoder.weight.abs().sum() + self.encoder.bias.square().sum()


parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=["bug", "fixed"])
args = parser.parse_args()
rank = int(os.environ["RANK"])
dist.init_process_group(backend="gloo", init_method="env://")
torch.manual_seed(5)
x = torch.randn(128, 12)
dataset = TensorDataset(x)
sampler = DistributedSampler(dataset, shuffle=True, seed=3)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)
net = SparseAutoencoder(12, 20)
ddp = DDP(net)
opt = optim.Adam(ddp.parameters(), lr=1e-3)
mse = nn.MSELoss()
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        opt.zero_grad(set_to_none=True)
        loss = mse(ddp(x), x)
        if args.mode == "fixed" or rank == 0:
            loss = loss + 0.01 * net.penalty()
        loss.backward()
        opt.step()
dist.destroy_process_group()
