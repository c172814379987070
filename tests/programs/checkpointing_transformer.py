# SPDX-License-Identifier: BSD-3-Clause
"""A small GPT with activation checkpointing (not reentrant), dropout and tied embeddings, static_graph=True."""
import hashlib
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

VOCABULARY, LENGTH, WIDTH, HEADS, DEPTH = 32, 16, 32, 4, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1), persistent=False)

    def attend(self, x):
        batch, length, _ = x.shape
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(WIDTH / HEADS) + self.mask[:length, :length], dim=-1)
        return self.project((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x):
        x = x + F.dropout(self.attend(self.norm1(x)), 0.1, self.training)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[:tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1337)
    model = DDP(GPT(), static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    torch.manual_seed(1337 + rank)
    losses = []
    for step in range(16):
        start = torch.randint(0, VOCABULARY, (8, 1))
        text = (start + torch.arange(LENGTH + 1) * (1 + start % 3)) % VOCABULARY
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())

    if rank == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    digest = hashlib.sha256()
    for tensor in model.module.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr(losses).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
