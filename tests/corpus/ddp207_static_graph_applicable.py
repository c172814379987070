# SPDX-License-Identifier: BSD-3-Clause
"""A model from a library carries a head for another task; find_unused_parameters=True searches for it in every step."""
# expect: DDP207 parameters similarity_head.*
# also: DDP201
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiPurpose(nn.Module):
    """Published with both heads, so that its checkpoints fit."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.EmbeddingBag(64, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.topic_head = nn.Linear(width, 5)
        self.similarity_head = nn.Linear(width, 1)

    def forward(self, words, task="topic"):
        hidden = self.body(self.embed(words))
        return self.topic_head(hidden) if task == "topic" else self.similarity_head(hidden)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    flag = "find_unused_parameters" if sys.argv[1] == "bug" else "static_graph"
    model = DDP(MultiPurpose(), **{flag: True})  # <- here
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(8):
        words = torch.randint(0, 64, (20, 7), generator=generator)
        loss = nn.functional.cross_entropy(model(words), words.sum(1) % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
