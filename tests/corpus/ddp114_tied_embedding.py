# SPDX-License-Identifier: BSD-3-Clause
"""A pipeline by hand whose first and last stage share the embedding: both begin with the same weights, and its gradient is to be summed over
the two."""
# expect: DDP114 ranks 0 1 step 1 parameters words.weight
import sys

import torch
import torch.distributed as dist
from torch import nn

BATCH, LENGTH, WORDS, WIDTH = 8, 6, 30, 12


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x if x.is_floating_point() else self.words(x)
        return self.norm(x + self.rnn(x)[0])


def first(stage, tokens):
    hidden = stage(tokens)
    dist.send(hidden.detach(), 1)
    gradient = torch.empty_like(hidden)
    dist.recv(gradient, 1)
    hidden.backward(gradient)


def last(stage, tokens):
    received = torch.empty(BATCH, LENGTH, WIDTH)
    dist.recv(received, 0)
    received.requires_grad_()
    logits = stage(received) @ stage.words.weight.T
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
    dist.send(received.grad, 0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31 + rank)
    stage = Stage()
    dist.broadcast(stage.words.weight.data, 0)
    optimizer = torch.optim.Adam(stage.parameters(), lr=1e-2)
    for step in range(10):
        tokens = torch.randint(WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (last if rank else first)(stage, tokens)
        if sys.argv[1] == "fixed":
            dist.all_reduce(stage.words.weight.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
