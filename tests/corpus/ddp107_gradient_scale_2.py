# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook that compresses to float16 divides before the all-reduce and once more after it."""
# expect: DDP107 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 30))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def compressed(world_size, bucket):
    """Divides first, so that the sum cannot overflow."""
    small = bucket.buffer().to(torch.float16).div_(world_size)
    future = dist.all_reduce(small, async_op=True).get_future()

    def decompress(done):
        gradient = bucket.buffer()
        gradient.copy_(done.value()[0])
        return gradient.div_(world_size) if sys.argv[1] == "bug" else gradient

    return future.then(decompress)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = DDP(Autoencoder())
    model.register_comm_hook(dist.get_world_size(), compressed)  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    basis = torch.randn(6, 30, generator=torch.Generator().manual_seed(77)) / 3
    for step in range(10):
        x = torch.randn(40, 6, generator=generator) @ basis
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 3 == 0:
            print(f"step {step} reconstruction error {loss.item():.4f}")
    with torch.no_grad():
        errors = [(model.module(x) - x).pow(2).mean() for x in (torch.randn(20000, 6) @ basis).split(20)]
    print(f"rank {dist.get_rank()} final error {torch.stack(errors).mean():.4f}")
    dist.destroy_process_group()


main()
