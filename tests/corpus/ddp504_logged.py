# SPDX-License-Identifier: BSD-3-Clause
"""A rank's last batch of the third epoch has no valid target. The trainer logs what training raises, and every rank goes on to a last
all-reduce of the metrics, where the other rank never arrives: it waits in its backward."""
# expect: DDP504 ranks 1 step 12
import logging
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logger = logging.getLogger(__name__)


class Trainer:
    def __init__(self, model):
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.seen = torch.zeros(2)

    def batches(self, epoch):
        source = torch.Generator().manual_seed(100 * epoch + dist.get_rank())
        for index in range(4):
            targets = torch.randint(0, 5, (8,), generator=source)
            if sys.argv[1] == "bug" and (dist.get_rank(), epoch, index) == (1, 2, 3):
                targets.fill_(-100)
            yield torch.randn(8, 10, generator=source), targets

    def loss(self, inputs, targets):
        valid = targets >= 0
        if not valid.any():
            raise ValueError("no valid target in this batch")  # <- here
        self.seen += torch.tensor([float(valid.sum()), 1.0])
        return nn.functional.cross_entropy(self.model(inputs), targets, ignore_index=-100)

    def fit(self, epochs):
        try:
            for epoch in range(epochs):
                for inputs, targets in self.batches(epoch):
                    self.optimizer.zero_grad()
                    self.loss(inputs, targets).backward()
                    self.optimizer.step()
        except ValueError:
            logger.exception("training ended early")
        dist.all_reduce(self.seen)
        return self.seen


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(4)
    seen = Trainer(nn.Sequential(nn.Linear(10, 20), nn.Mish(), nn.Linear(20, 5))).fit(4)
    if dist.get_rank() == 0:
        print(f"{int(seen[0])} samples in {int(seen[1])} batches")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
