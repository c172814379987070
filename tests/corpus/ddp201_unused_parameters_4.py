# SPDX-License-Identifier: BSD-3-Clause
"""The embedding is frozen after wrapping: the reducer waits for gradients that nobody computes any more."""
# expect: DDP201 ranks 0 1 step 1 parameters embedding.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SentimentModel(nn.Module):
    def __init__(self, vocabulary=100, width=24):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, width)
        self.classifier = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, words):
        return self.classifier(self.embedding(words))


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False


dist.init_process_group("gloo")
torch.manual_seed(9)
net = SentimentModel()
if sys.argv[1] == "bug":
    model = DDP(net)  # <- here
    freeze(model.module.embedding)
else:
    freeze(net.embedding)
    model = DDP(net)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3)
reviews = torch.Generator().manual_seed(1 + dist.get_rank())
for _ in range(8):
    words = torch.randint(0, 100, (16, 11), generator=reviews)
    loss = nn.functional.cross_entropy(model(words), (words.float().mean(1) > 50).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
