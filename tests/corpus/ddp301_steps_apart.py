# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer steps whenever enough tokens have accumulated on this rank: ranks step after different batches."""
# expect: DDP301 ranks 0 1 step 3
# also: DDP113
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.tag = nn.Linear(16, 5)

    def forward(self, tokens):
        return self.tag(self.embed(tokens))


class TokenBudget:
    """Updates after about `budget` tokens, as sentences differ in length."""

    def __init__(self, optimizer, budget, everywhere):
        self.optimizer, self.budget, self.everywhere, self.seen = optimizer, budget, everywhere, 0

    def add(self, tokens):
        count = torch.tensor(float(tokens))
        if self.everywhere:
            dist.all_reduce(count)
            count /= dist.get_world_size()
        self.seen += count.item()
        if self.seen >= self.budget:
            self.optimizer.step()  # <- here
            self.optimizer.zero_grad()
            self.seen = 0


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = DistributedDataParallel(Tagger())
    updates = TokenBudget(torch.optim.SGD(model.parameters(), lr=0.2), budget=40, everywhere=sys.argv[1] == "fixed")
    generator = torch.Generator().manual_seed(20 + dist.get_rank())
    for batch in range(30):
        length = int(torch.randint(5, 30, (1,), generator=generator))
        tokens = torch.randint(0, 50, (4, length), generator=generator)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), (tokens % 5).flatten())
        loss.backward()
        updates.add(length)
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


main()
