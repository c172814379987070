# SPDX-License-Identifier: BSD-3-Clause
"""The epoch is no multiple of the accumulation window: its last step follows micro-batches under no_sync only."""
# expect: DDP103 step 3
import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, args):
        self.args = args
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def must_synchronize(self, i, batches):
        window_is_full = (i + 1) % self.args.accumulate == 0
        return window_is_full if self.args.variant == "bug" else window_is_full or i + 1 == batches

    def train_epoch(self, loader):
        total = 0.0
        for i, (x, y) in enumerate(loader):
            with contextlib.nullcontext() if self.must_synchronize(i, len(loader)) else self.model.no_sync():
                loss = nn.functional.huber_loss(self.model(x), y)
                (loss / self.args.accumulate).backward()
            if (i + 1) % self.args.accumulate == 0 or i + 1 == len(loader):
                self.optimizer.step()  # <- here
                self.optimizer.zero_grad()
            total += loss.item()
        return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(160, 9)
    dataset = TensorDataset(x, x.sin().sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    trainer = Trainer(nn.Sequential(nn.Linear(9, 30), nn.SiLU(), nn.Linear(30, 1)), args)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = trainer.train_epoch(loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
