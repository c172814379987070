# SPDX-License-Identifier: BSD-3-Clause
"""Hand-written averaging that forgets to divide: the optimizer gets the sum over the ranks."""
# expect: DDP107 step 1
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build(width):
    return nn.Sequential(nn.Linear(10, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 2))


def sync_initial_weights(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


def sync_gradients(model, average):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)  # <- here
        if average:
            parameter.grad.data /= dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(100 + dist.get_rank())
    x = torch.randn(192, 10, generator=torch.Generator().manual_seed(0))
    dataset = TensorDataset(x, torch.stack([x.sum(1), x.prod(1)], dim=1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = build(args.width)
    sync_initial_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for features, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.smooth_l1_loss(model(features), target)
            loss.backward()
            sync_gradients(model, average=args.variant == "fixed")
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
