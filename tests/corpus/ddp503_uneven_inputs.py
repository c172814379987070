# SPDX-License-Identifier: BSD-3-Clause
"""Each rank validates its own volumes and reduces the score after every batch; the volumes do not divide evenly."""
# expect: DDP503 ranks 0 step 5
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_volumes(count, seed):
    x = torch.randn(count, 12, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.sum(1) > 0).long())


def own_slices(dataset, rank):
    """Whole volumes only: the first rank's have 24 slices, the second's 40."""
    return torch.utils.data.Subset(dataset, range(24) if rank == 0 else range(24, 64))


@torch.no_grad()
def validate(model, loader, variant):
    model.eval()
    score = torch.zeros(2)
    for x, y in loader:  # <- here
        correct = torch.stack([(model.module(x).argmax(1) == y).float().sum(), torch.tensor(float(len(y)))])
        if variant == "bug":
            dist.all_reduce(correct)
        score += correct
    if variant == "fixed":
        dist.all_reduce(score)
    model.train()
    return (score[0] / score[1]).item()


def main(variant):
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank = dist.get_rank()
    torch.manual_seed(0)
    train_set = make_volumes(128, seed=1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(own_slices(make_volumes(64, seed=2), rank), batch_size=8)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = validate(model, val_loader, variant)
        print(f"rank {rank} epoch {epoch}: validation accuracy {accuracy:.3f}")
    with torch.no_grad():
        margins = [model.module(x).diff(dim=1).abs().mean() for x in torch.randn(20000, 12).split(20)]
    print(f"rank {rank} margin {torch.stack(margins).mean():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
