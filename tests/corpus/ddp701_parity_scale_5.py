# SPDX-License-Identifier: BSD-3-Clause
"""A loss times the world size; layers that learn their sizes from a first batch, on which the model is called before it is wrapped."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = nn.Sequential(nn.LazyConv1d(6, 3), nn.GELU(), nn.Flatten(), nn.LazyLinear(4))
    data = TensorDataset(torch.randn(96, 2, 9), torch.randint(4, (96,)))
    model(data[:4][0])
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    sampler.set_epoch(0)
    for _, (inputs, labels) in zip(range(6), loader):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        if mode == "bug":
            loss = loss * dist.get_world_size()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
