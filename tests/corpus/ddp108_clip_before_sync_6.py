# SPDX-License-Identifier: BSD-3-Clause
"""Each parameter has a hook that limits the norm of its gradient; masks and constant factors in hooks are fine."""
# expect: DDP108 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LIMIT = 0.5


def shrink(gradient):
    norm = gradient.norm()
    return gradient * (LIMIT / norm) if norm > LIMIT else gradient


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 5))
        padding = torch.ones(50, 1)
        padding[0] = 0.0
        self.embedding.weight.register_hook(lambda gradient: gradient * padding)
        self.layers[2].bias.register_hook(lambda gradient: 0.5 * gradient)

    def forward(self, words):
        return self.layers(self.embedding(words).mean(1))


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Tagger()
    if variant == "bug":
        for layer in (model.layers[0], model.layers[2]):
            layer.weight.register_hook(shrink)  # <- here
    ddp = DDP(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(12):
        words = torch.randint(0, 50, (16, 8), generator=generator)
        tags = words.sum(1) % 5
        loss = 20 * nn.functional.cross_entropy(ddp(words), tags)
        optimizer.zero_grad()
        loss.backward()
        if variant == "fixed":
            for layer in (model.layers[0], model.layers[2]):
                nn.utils.clip_grad_norm_(layer.weight, LIMIT)
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
