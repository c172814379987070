# SPDX-License-Identifier: BSD-3-Clause
"""The loss is a sum over the batch, and the optimizer gets a closure that runs forward and backward, as Lightning's do. Batches are read ahead."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FIXED = "fixed" in sys.argv


class Loop:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def step(self, features, target):
        def closure():
            errors = (self.model(features).squeeze(1) - target).abs()
            loss = errors.mean() if FIXED else errors.sum()
            self.optimizer.zero_grad()
            loss.backward()
            return loss

        return self.optimizer.step(closure)

    def epoch(self, loader):
        batches = iter(loader)
        following = next(batches, None)
        while following is not None:
            batch, following = following, next(batches, None)
            self.step(*batch)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    features = torch.randn(128, 7)
    data = TensorDataset(features, features.prod(1))
    model = DDP(nn.Sequential(nn.Linear(7, 10), nn.Softplus(), nn.Linear(10, 1)))
    loop = Loop(model, torch.optim.RMSprop(model.parameters(), lr=1e-3))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loop.epoch(loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
