# SPDX-License-Identifier: BSD-3-Clause
"""DataLoader workers and a pool that are started by spawn, each a new interpreter that imports this file."""
import hashlib
import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Waves(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        t = torch.linspace(0, 6, 16)
        return torch.sin(t * (1 + index % 5) + index), index % 5


def mean_of(index):
    return round(Waves()[index][0].mean().item(), 6)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(19)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        means = pool.map(mean_of, range(8))
    sampler = DistributedSampler(Waves(), shuffle=True, seed=4)
    loader = DataLoader(Waves(), batch_size=8, sampler=sampler, num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
    model = DDP(nn.Sequential(nn.Unflatten(1, (1, 16)), nn.Conv1d(1, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for waves, labels in loader:
            loss = nn.functional.cross_entropy(model(waves), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(model.module(Waves()[0][0].unsqueeze(0)).sum().item())

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, means)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
