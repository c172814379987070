# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer is made first, with weight decay for matrices only; then fully_shard puts DTensors into the place of its parameters."""
# expect: DDP307 step 1
# needs: torch>=2.7
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def optimizer_of(model):
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-2, foreach=False)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.LayerNorm(8))
    optimizer = optimizer_of(model) if sys.argv[1] == "bug" else None
    fully_shard(model[2])
    fully_shard(model)
    optimizer = optimizer or optimizer_of(model)
    batches = torch.Generator().manual_seed(10 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(16, 8, generator=batches)
        loss = (model(x) - x.cumsum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
