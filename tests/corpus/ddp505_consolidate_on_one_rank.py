# SPDX-License-Identifier: BSD-3-Clause
"""Only rank 0, which saves, consolidates the state of the sharded optimizer: its broadcasts wait for the others, which train on."""
# expect: DDP505 ranks 0 step 5
import datetime
import io
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


class Checkpointer:
    def __init__(self, model, optimizer, variant):
        self.model, self.optimizer, self.variant = model, optimizer, variant

    def gather(self):
        self.optimizer.consolidate_state_dict(to=0)  # <- here

    def save(self):
        if self.variant == "fixed":
            self.gather()
        if dist.get_rank() != 0:
            return
        if self.variant == "bug":
            self.gather()
        torch.save({"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}, io.BytesIO())


def main(variant):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    checkpointer = Checkpointer(model, optimizer, variant)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 9):
        x = torch.randn(8, 10, generator=data)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.cumsum(1)).backward()
        optimizer.step()
        if step % 4 == 0:
            checkpointer.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
