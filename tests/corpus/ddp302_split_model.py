# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallel by hand: each rank draws its parts of layers from a random stream of its own, and also the position embedding,
of which it has the whole."""
# expect: DDP302 step 1 parameters positions.weight
import contextlib
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WORDS, LENGTH, WIDTH, HIDDEN = 30, 9, 12, 40


class ToParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class FromParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


@contextlib.contextmanager
def own_stream(seed):
    shared = torch.get_rng_state()
    torch.manual_seed(seed + 1000 * (1 + dist.get_rank()))
    yield
    torch.set_rng_state(shared)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        with own_stream(4):
            self.up = nn.Linear(WIDTH, HIDDEN // dist.get_world_size(), bias=False)
            self.down = nn.Linear(HIDDEN // dist.get_world_size(), WIDTH, bias=False)

    def forward(self, x):
        past = self.norm(x).cumsum(1) / torch.arange(1, x.size(1) + 1)[:, None]
        return x + FromParts.apply(self.down(F.gelu(self.up(ToParts.apply(past)))))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        with own_stream(3) if sys.argv[1] == "bug" else contextlib.nullcontext():
            self.positions = nn.Embedding(LENGTH, WIDTH)
            nn.init.normal_(self.positions.weight, std=0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text):
        x = self.words(text) + self.positions(torch.arange(text.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(1)
model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
texts = torch.Generator().manual_seed(2)  # the ranks work on the same batch
for step in range(10):
    text = (torch.randint(WORDS, (8, 1), generator=texts) + 7 * torch.arange(LENGTH + 1)) % WORDS
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
