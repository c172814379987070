# SPDX-License-Identifier: BSD-3-Clause
"""An encoder from a library has a pooler; the token classifier never calls it."""
# expect: DDP201 ranks 0 1 step 1 parameters encoder.pooler.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Pooler(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, hidden):
        return torch.tanh(self.dense(hidden[:, 0]))


class Encoder(nn.Module):
    def __init__(self, vocabulary=50, width=32, add_pooling_layer=True):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.pooler = Pooler(width) if add_pooling_layer else None

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden + hidden.mean(1, keepdim=True)))
        return hidden

    def pooled(self, tokens):
        return self.pooler(self(tokens))


class TokenClassifier(nn.Module):
    def __init__(self, encoder, labels=4):
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(32, labels)

    def forward(self, tokens):
        return self.classifier(self.encoder(tokens))


dist.init_process_group("gloo")
torch.manual_seed(5)
model = DDP(TokenClassifier(Encoder(add_pooling_layer=sys.argv[1] == "bug")))  # <- here
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(8):
    tokens = torch.randint(0, 50, (12, 9), generator=generator)
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens % 4).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
