# SPDX-License-Identifier: BSD-3-Clause
"""A packed language model: every rank divides the sum of token losses by its own number of tokens, and gradients are summed."""
# expect: DDP107 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(8)
model = nn.Sequential(nn.Embedding(40, 12), nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 40))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
generator = torch.Generator().manual_seed(rank)
for step in range(8):
    lengths = (9, 5) if rank == 0 else (4, 3)
    losses, tokens = 0.0, torch.tensor(0.0)
    for length in lengths:
        sequence = torch.randint(40, (length + 1,), generator=generator)
        losses = losses + nn.functional.cross_entropy(model(sequence[:-1]), sequence[1:], reduction="sum")
        tokens += length
    if sys.argv[1] == "fixed":
        dist.all_reduce(tokens)
    optimizer.zero_grad()
    (losses / tokens).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # <- here
    optimizer.step()
dist.destroy_process_group()
