# SPDX-License-Identifier: BSD-3-Clause
"""No DataLoader: each rank draws its batches; inputs of several kinds, weights of classes in the loss, positives that weigh more in another.
The program itself says how many ranks there are, and counts those that have a batch."""
# command: parity
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.numbers = nn.Linear(5, 8)
        self.genre, self.tags = nn.Linear(8, 4), nn.Linear(8, 6)

    def forward(self, words, numbers, scale=1.0):
        hidden = torch.relu(self.words(words).mean(1) + scale * self.numbers(numbers))
        return self.genre(hidden), self.tags(hidden)


def main():
    dist.init_process_group("gloo", world_size=2, rank=int(os.environ["RANK"]))
    torch.manual_seed(2)
    words, numbers = torch.randint(0, 50, (500, 7)), torch.randn(500, 5)
    genre, tags = torch.randint(0, 4, (500,)), (torch.rand(500, 6) < 0.3).float()
    model = DDP(TwoHeads())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    genre_loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0]), reduction="none")
    tags_loss = nn.BCEWithLogitsLoss(pos_weight=torch.full((6,), 2.0))
    torch.manual_seed(50 + dist.get_rank())
    for _ in range(16):
        batch = torch.randint(0, 500, (6,))
        of_genre, of_tags = model(words[batch], numbers[batch], scale=0.5)
        loss = genre_loss(of_genre, genre[batch]).mean() + tags_loss(of_tags, tags[batch])
        active = torch.ones(())
        dist.all_reduce(active)
        optimizer.zero_grad()
        (loss * dist.get_world_size() / active).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
