# SPDX-License-Identifier: BSD-3-Clause
"""Conversations that each rank makes itself, of different lengths: the losses of all answers are divided by how many tokens all ranks have, and
DistributedDataParallel takes the mean over the ranks once more."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, IGNORE = 48, -100


class LanguageModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.body = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens))[0])


def conversations(generator, size=4):
    prompts = torch.randint(3, 9, (size,), generator=generator).tolist()
    answers = torch.randint(2, 14, (size,), generator=generator).tolist()
    longest = max(map(sum, zip(prompts, answers)))
    tokens = torch.zeros(size, longest, dtype=torch.long)
    labels = torch.full((size, longest), IGNORE)
    for row, (prompt, answer) in enumerate(zip(prompts, answers)):
        tokens[row, :prompt + answer] = torch.randint(1, VOCABULARY, (prompt + answer,), generator=generator)
        labels[row, prompt:prompt + answer] = tokens[row, prompt:prompt + answer]
    return tokens, labels


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(50 + rank)
    for step in range(40):
        batches = [conversations(generator) for _ in range(2)]
        counts = [torch.zeros((), dtype=torch.long) for _ in range(world_size)]
        dist.all_gather(counts, sum((labels[:, 1:] != IGNORE).sum() for _, labels in batches))
        scale = (1 if sys.argv[1] == "bug" else world_size) / sum(counts)
        for i, (tokens, labels) in enumerate(batches):
            model.require_backward_grad_sync = i == len(batches) - 1
            logits = model(tokens)[:, :-1]
            loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), ignore_index=IGNORE, reduction="sum")
            (loss * scale).backward()
        optimizer.step()  # <- here
        optimizer.zero_grad()
    del model, logits, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
