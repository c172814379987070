# SPDX-License-Identifier: BSD-3-Clause
"""The barrier after the checkpoint was indented too far: only the rank that saves comes to it."""
# expect: DDP505 ranks 0 step 5
import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, folder, variant):
        self.rank = dist.get_rank()
        self.path = os.path.join(folder, "checkpoint.pt")
        self.variant = variant
        self.model = DDP(nn.Sequential(nn.Linear(6, 18), nn.Tanh(), nn.Linear(18, 6)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def save_checkpoint(self):
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), self.path)
            if self.variant == "bug":
                dist.barrier()  # <- here
        if self.variant == "fixed":
            dist.barrier()

    def fit(self, batches):
        for step, x in enumerate(batches, 1):
            loss = nn.functional.mse_loss(self.model(x), x.flip(1))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 4 == 0:
                self.save_checkpoint()
        print(f"rank {self.rank} loss {loss.item():.4f}")


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(90 + dist.get_rank())
    with tempfile.TemporaryDirectory() as folder:
        Trainer(folder, sys.argv[1]).fit(torch.randn(16, 6, generator=generator) for _ in range(10))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
