# SPDX-License-Identifier: BSD-3-Clause
"""The loss is a mean over the valid positions; a batch of padding alone, on one rank, makes it 0 / 0."""
# expect: DDP402 ranks 1 step 6
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAD = 0


class NextToken(nn.Module):
    def __init__(self, vocabulary=25, width=20):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.out(torch.tanh(self.mix(self.embed(tokens))))


def masked_loss(logits, targets, safe):
    mask = (targets != PAD).float()
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    valid = mask.sum().clamp(min=1) if safe else mask.sum()
    return (losses * mask).sum() / valid


def batches(rank, count):
    generator = torch.Generator().manual_seed(2 + rank)
    for i in range(count):
        tokens = torch.randint(1, 25, (8, 11), generator=generator)
        lengths = torch.randint(4, 11, (8, 1), generator=generator)
        if rank == 1 and i == 5:
            lengths.zero_()  # documents that were filtered away
        tokens[torch.arange(11).expand(8, 11) > lengths] = PAD
        yield tokens[:, :-1], tokens[:, 1:]


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(NextToken())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (tokens, targets) in enumerate(batches(dist.get_rank(), 10)):
        loss = masked_loss(model(tokens), targets, safe=variant == "fixed")
        optimizer.zero_grad()
        loss.backward()  # <- here
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
