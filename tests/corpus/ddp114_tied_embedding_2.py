# SPDX-License-Identifier: BSD-3-Clause
"""Three stages of a language model, each layer drawn from a seed of its own wherever it lies. The last stage has a copy of the first one's token
embedding for its logits, and the gradients of the two are never added up."""
# expect: DDP114 step 1 parameters token_embedding.weight
# ranks: 3
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, WIDTH, LENGTH, BATCH = 40, 16, 9, 6


def drawn(seed, make):
    torch.manual_seed(seed)
    return make()


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.time, self.width = nn.Linear(LENGTH, LENGTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.time(x.transpose(1, 2)).tril().transpose(1, 2)
        return x + F.gelu(self.width(self.norm(x)))


class Stage(nn.Module):
    def __init__(self, rank, last):
        super().__init__()
        self.rank, self.last = rank, last
        if rank in (0, last):
            self.token_embedding = drawn(1, lambda: nn.Embedding(VOCABULARY, WIDTH))
        self.layers = nn.ModuleDict({f"layer{i}": drawn(2 + i, Mixer) for i in (2 * rank, 2 * rank + 1)})

    def forward(self, x):
        if self.rank == 0:
            x = self.token_embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x @ self.token_embedding.weight.T if self.rank == self.last else x

    def run(self, tokens):
        x = tokens
        if self.rank > 0:
            x = torch.empty(BATCH, LENGTH, WIDTH)
            dist.recv(x, self.rank - 1)
            x.requires_grad_()
        y = self(x)
        if self.rank == self.last:
            F.cross_entropy(y.flatten(0, 1), tokens.flatten()).backward()
        else:
            dist.send(y.detach(), self.rank + 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, self.rank + 1)
            y.backward(gradient)
        if self.rank > 0:
            dist.send(x.grad, self.rank - 1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    ends = dist.new_group([0, last])
    stage = Stage(rank, last)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1, momentum=0.8)
    for step in range(8):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        stage.run(tokens)
        if sys.argv[1] == "fixed" and rank in (0, last):
            dist.all_reduce(stage.token_embedding.weight.grad, group=ends)
        optimizer.step()
    dist.destroy_process_group()
