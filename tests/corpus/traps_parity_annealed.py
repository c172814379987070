# SPDX-License-Identifier: BSD-3-Clause
"""A variational autoencoder that counts its iterations: the weight of one term of its loss grows, the decoder is frozen for the first two."""
# command: parity
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ANNEALED_OVER = 10
FROZEN_FOR = 2


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 8)
        self.decoder = nn.Linear(4, 12)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        return self.decoder(mean), mean, log_variance


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(160, 12))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DDP(Autoencoder(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for iteration, (x,) in enumerate(loader):
        for parameter in model.module.decoder.parameters():
            parameter.requires_grad_(iteration >= FROZEN_FOR)
        output, mean, log_variance = model(x)
        divergence = 0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(1).mean()
        loss = (output - x).pow(2).mean() + min(1.0, iteration / ANNEALED_OVER) * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
