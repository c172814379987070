# SPDX-License-Identifier: BSD-3-Clause
"""Gradual unfreezing by each rank's own validation loss: one rank freezes the encoder again, and find_unused_parameters=True hides it."""
# expect: DDP202 ranks 1 step 4 parameters encoder.*
# also: DDP204
# also: DDP207
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


def wants_frozen(step, noise, agree):
    signal = torch.tensor(1.0 if step >= 3 and noise > 0.5 else 0.0)
    if agree:
        dist.broadcast(signal, src=0)
    return bool(signal)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(Tagger(), find_unused_parameters=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(70 + rank)
for step in range(8):
    frozen = wants_frozen(step, noise=0.9 * rank, agree=sys.argv[1] == "fixed")
    for parameter in model.module.encoder.parameters():
        parameter.requires_grad = not frozen
    x = torch.randn(10, 12, generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), x[:, :4].argmax(dim=1)).backward()  # the path is the same on every rank
    optimizer.step()
dist.destroy_process_group()
