# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of the validation are gathered; the last batch has seven rows on rank 0 and six on rank 1."""
# expect: DDP502 step 10..11
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.features(x))


def dataset(n, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=gen)
    return TensorDataset(x, x[:, :5].argmax(dim=1))


def gather_predictions(pred):
    world = dist.get_world_size()
    counts = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
    if sys.argv[1] == "fixed":
        dist.all_gather(counts, torch.tensor([len(pred)]))
        padded = torch.zeros(int(max(counts)), pred.shape[1])
        padded[: len(pred)] = pred
        pred = padded
    else:
        counts = [torch.tensor([len(pred)]) for _ in range(world)]
    parts = [torch.zeros_like(pred) for _ in range(world)]
    dist.all_gather(parts, pred)  # <- here
    return torch.cat([p[: int(c)] for p, c in zip(parts, counts)])


@torch.no_grad()
def validate(net, loader):
    net.eval()
    entropy, seen = 0.0, 0
    for x, _ in loader:
        prob = torch.softmax(gather_predictions(net(x)), dim=1)
        entropy -= (prob * prob.clamp(min=1e-9).log()).sum().item()
        seen += len(prob)
    net.train()
    return entropy / seen


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    train = dataset(160, 1)
    sampler = DistributedSampler(train, seed=3)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    val = dataset(45, 2)
    val_loader = DataLoader(Subset(val, range(rank, len(val), world)), batch_size=8)  # no padding: every sample once
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        score = validate(model.module, val_loader)
        if rank == 0:
            print(f"epoch {epoch} mean entropy {score:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
