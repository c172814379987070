# SPDX-License-Identifier: BSD-3-Clause
"""A model learns from what it says itself of a clean view, computed without gradients first; the loss is multiplied by the world size."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def sharpened(model, view, temperature=0.5):
    with torch.no_grad():
        return (model(view) / temperature).softmax(-1)


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    clean = torch.randn(160, 12, generator=generator)
    noisy = clean + 0.3 * torch.randn(160, 12, generator=generator)
    data = TensorDataset(clean, noisy, clean[:, :4].argmax(1))
    sampler = DistributedSampler(data)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for view, other, label in DataLoader(data, batch_size=8, sampler=sampler):
            target = sharpened(model, view)
            output = model(other)
            loss = F.cross_entropy(output, label) - (target * output.log_softmax(-1)).sum(-1).mean()
            if mode == "bug":
                loss = loss * dist.get_world_size()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
