# SPDX-License-Identifier: BSD-3-Clause
"""Low-rank adapters on a frozen half-precision layer; rank 0 merges them for its evaluation, and takes them out again: rounding stays."""
# expect: DDP305 step 7
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Adapted(nn.Module):
    def __init__(self, dim, rank=4):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(dim, dim) / dim**0.5).half(), requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, dim) / dim**0.5)
        self.up = nn.Parameter(torch.zeros(dim, rank))
        self.merged = False

    @torch.no_grad()
    def merge(self, sign=1):
        self.weight.copy_(self.weight.float() + sign * self.up @ self.down)
        self.merged = sign > 0

    def forward(self, x):
        y = F.linear(x, self.weight.float())
        return y if self.merged else y + x @ self.down.t() @ self.up.t()


@torch.no_grad()
def evaluate(layer, head, x, y):
    kept = layer.weight.clone()
    layer.merge()
    loss = F.mse_loss(head(torch.tanh(layer(x))).squeeze(1), y).item()
    if sys.argv[1] == "fixed":
        layer.weight.copy_(kept)
        layer.merged = False
    else:
        layer.merge(-1)
    return loss


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layer, head = Adapted(24), nn.Linear(24, 1)
    model = DDP(nn.Sequential(layer, nn.Tanh(), head))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    torch.manual_seed(100 + rank)
    held_out = torch.randn(64, 24)
    for step in range(1, 16):
        x = torch.randn(16, 24)
        loss = F.mse_loss(model(x).squeeze(1), x[:, 0].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0 and rank == 0:
            print(f"step {step}: {evaluate(layer, head, held_out, held_out[:, 0].sin()):.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
