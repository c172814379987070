# SPDX-License-Identifier: BSD-3-Clause
"""A resumed job: only rank 0 has the file with the number of the last epoch, so the ranks' samplers shuffle by different epochs, and some
samples are trained on twice while others are left out."""
# expect: DDP401
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def last_epoch():
    epoch = torch.tensor([3 if dist.get_rank() == 0 else 0])
    if sys.argv[1] == "fixed":
        dist.broadcast(epoch, src=0)
    return int(epoch)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1)))
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(x, x.prod(dim=1, keepdim=True))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    begin = last_epoch()
    for epoch in range(begin, begin + 3):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
