# SPDX-License-Identifier: BSD-3-Clause
"""Two bugs that have nothing to do with each other: a learned temperature outside the wrapper, and no set_epoch."""
# expect: DDP106 step 1 parameters *temperature
# expect: DDP404
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 8))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


class ContrastiveLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, first, second):
        logits = first @ second.t() / self.temperature.clamp(min=0.05)
        return F.cross_entropy(logits, torch.arange(len(first)))


def main(args):
    right = args.variant == "fixed"
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(128, 14))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model, criterion = DDP(Embedder()), ContrastiveLoss()
    if right:
        criterion = DDP(criterion)
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=args.lr)
    for epoch in range(args.epochs):
        if right:
            sampler.set_epoch(epoch)
        for (x,) in loader:  # <- DDP404
            both = model(torch.cat([x, x + 0.2 * torch.randn_like(x)]))
            loss = criterion(*both.chunk(2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {dist.get_rank()} epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    main(parser.parse_args())
