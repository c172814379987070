# SPDX-License-Identifier: BSD-3-Clause
"""Files are dealt out by files[rank::world_size]; with an odd number of them one rank has a batch more."""
# expect: DDP503 ranks 1 step 8
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FILES = [f"part-{i:03d}" for i in range(15)]


def own_files(rank, world_size, variant):
    files = FILES[rank::world_size]
    return files[:len(FILES) // world_size] if variant == "fixed" else files


def load(file):
    generator = torch.Generator().manual_seed(int(file[-3:]))
    x = torch.randn(24, 9, generator=generator)
    return x, x[:, :3].prod(1, keepdim=True)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(9, 30)
        self.out = nn.Linear(30, 1)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Regressor())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for file in own_files(rank, world_size, sys.argv[1]):
        x, y = load(file)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} {file} loss {loss.item():.4f}")
    final = loss.detach().clone()
    dist.all_reduce(final)
    if rank == 0:
        print(f"mean loss on the last file {final.item() / world_size:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
