# SPDX-License-Identifier: BSD-3-Clause
"""What is left of an epoch after the last whole window is stepped on by a line of its own, all of it accumulated under no_sync."""
# expect: DDP103 ranks 0 1 step 3
# From a trainer of a small language model on code. In each epoch the first two steps are right.
import contextlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4
VOCABULARY, LENGTH = 50, 12


class Coder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, text):
        states, _ = self.mixer(self.tokens(text[:, :-1]))
        return F.cross_entropy(self.head(states).flatten(0, 1), text[:, 1:].flatten())


class Trainer:
    def __init__(self, model, batches, synchronizes_the_rest):
        self.model, self.batches = model, batches
        self.synchronizes_the_rest = synchronizes_the_rest
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def micro_batch(self, index, batch):
        last = (index + 1) % ACCUMULATE == 0
        if self.synchronizes_the_rest:
            last = last or index + 1 == len(self.batches)
        with contextlib.nullcontext() if last else self.model.no_sync():
            (self.model(batch) / ACCUMULATE).backward()

    def epoch(self):
        for index, batch in enumerate(self.batches):
            self.micro_batch(index, batch)
            if (index + 1) % ACCUMULATE == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
        if len(self.batches) % ACCUMULATE:
            self.optimizer.step()  # <- here
            self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DDP(Coder())
    texts = torch.randint(VOCABULARY, (10, 2, 3, LENGTH), generator=torch.Generator().manual_seed(6))
    trainer = Trainer(model, list(texts[:, rank]), sys.argv[1] == "fixed")
    for _ in range(3):
        trainer.epoch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
