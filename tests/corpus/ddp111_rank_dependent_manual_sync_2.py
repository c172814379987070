# SPDX-License-Identifier: BSD-3-Clause
"""Gradients are all-reduced in the order in which they become ready, which differs by rank."""
# expect: DDP111 step 2 parameters fast.* slow.*
import random
import sys

import torch
import torch.distributed as dist
from torch import nn


class TwoPathways(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = nn.Linear(18, 18)
        self.slow = nn.Linear(18, 18)
        self.head = nn.Linear(18, 2)

    def forward(self, x, fast_first):
        branches = [self.fast, self.slow] if fast_first else [self.slow, self.fast]
        for branch in branches:
            x = x + torch.tanh(branch(x))
        return self.head(x)


class ReadyQueue:
    def __init__(self, model):
        self.ready = []
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda gradient, name=name: self.ready.append(name))

    def all_reduce(self, model, in_order_of_names):
        parameters = dict(model.named_parameters())
        for name in sorted(self.ready) if in_order_of_names else self.ready:
            dist.all_reduce(parameters[name].grad)  # <- here
            parameters[name].grad /= dist.get_world_size()
        self.ready.clear()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = TwoPathways()
    queue = ReadyQueue(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    coin = random.Random(rank)
    for step in range(10):
        x = torch.randn(16, 18, generator=generator)
        fast_first = step == 0 or coin.random() < 0.5
        loss = nn.functional.cross_entropy(model(x, fast_first), (x.mean(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        queue.all_reduce(model, in_order_of_names=sys.argv[1] == "fixed")
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
