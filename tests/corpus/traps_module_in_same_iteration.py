# SPDX-License-Identifier: BSD-3-Clause
"""The encoder runs through the wrapper, the decoder by .module in the same iteration: all is averaged."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(6, 20, batch_first=True)
        self.decoder = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 6))

    def forward(self, x):
        return self.encoder(x)[1].squeeze(0)

    def decode(self, hidden):
        return self.decoder(hidden)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Seq2Seq())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(10):
        x = torch.randn(16, 5, 6, generator=generator)
        hidden = model(x)
        loss = F.mse_loss(model.module.decode(hidden), x.mean(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
