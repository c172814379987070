# SPDX-License-Identifier: BSD-3-Clause
"""Gradients accumulated over micro-batches without no_sync(): a head that nothing calls, and the reducer complains before the first step."""
# expect: DDP201 step 1 parameters second_head.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MICRO_BATCHES = 4


class Tagger(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.encoder = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 5)
        if heads == 2:
            self.second_head = nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(self.encoder(self.words(tokens))[0])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(Tagger(heads=2 if sys.argv[1] == "bug" else 1))  # <- here
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sentences = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        for _ in range(MICRO_BATCHES):
            tokens = torch.randint(0, 40, (4, 7), generator=sentences)
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten() % 5)
            (loss / MICRO_BATCHES).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
