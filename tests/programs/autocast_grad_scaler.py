# SPDX-License-Identifier: BSD-3-Clause
"""Mixed precision: bfloat16 autocast on the CPU, and a GradScaler where torch has one for the CPU (2.3 and later).

The scaler starts far too high, as it does in float16 training: the first steps overflow on every rank alike and are
skipped.
"""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class NoScaler:
    """What is left of a GradScaler where there is none."""

    def scale(self, loss):
        return loss

    def unscale_(self, optimizer):
        pass

    def step(self, optimizer):
        optimizer.step()

    def update(self):
        pass

    def get_scale(self):
        return 1.0


def make_scaler():
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=6, backoff_factor=2.0**-4)
    return NoScaler()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens).float())
        return self.head(states.mean(1))


def train(model, steps, rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    scaler = make_scaler()
    generator = torch.Generator().manual_seed(rank)
    history = []
    for step in range(steps):
        tokens = torch.randint(0, 50, (16, 10), generator=generator)
        labels = (tokens < 10).sum(1).clamp(max=4)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        history.append((loss.item(), scaler.get_scale()))
    return history


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = DDP(Encoder())
    history = train(model, 24, rank)
    if rank == 0:
        print(f"loss {history[0][0]:.4f} -> {history[-1][0]:.4f}, scale {history[0][1]} -> {history[-1][1]}")

    digest = hashlib.sha256()
    for tensor in model.module.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr(history).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
