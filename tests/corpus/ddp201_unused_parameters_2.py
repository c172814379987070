# SPDX-License-Identifier: BSD-3-Clause
"""forward returns source and target predictions; the loss of this configuration leaves the target prediction out."""
# expect: DDP201 ranks 0 1 step 1 parameters target_head.*
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DomainAdaptation(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(18, 36), nn.LeakyReLU(), nn.Linear(36, 20), nn.LeakyReLU())
        self.source_head = nn.Linear(20, 3)
        self.target_head = nn.Linear(20, 3)

    def forward(self, source, target):
        return self.source_head(self.features(source)), self.target_head(self.features(target))


def criterion(source_pred, target_pred, labels, pseudo_weight):
    loss = nn.functional.cross_entropy(source_pred, labels)
    if pseudo_weight > 0:
        entropy = -(target_pred.softmax(1) * target_pred.log_softmax(1)).sum(1).mean()
        loss = loss + pseudo_weight * entropy
    return loss


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = DDP(DomainAdaptation())  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    generator = torch.Generator().manual_seed(args.seed + dist.get_rank())
    pseudo_weight = 0.0 if args.variant == "bug" else 0.1
    for _ in range(args.steps):
        source = torch.randn(16, 18, generator=generator)
        target = source.flip(1) + 0.3
        source_pred, target_pred = model(source, target)
        loss = criterion(source_pred, target_pred, source[:, :3].argmax(1), pseudo_weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--steps", type=int, default=8)
    main(parser.parse_args())
