# SPDX-License-Identifier: BSD-3-Clause
"""The factory returns the optimizer with the model, and the caller replaces the model by the pre-trained one. The first one was drawn by each
rank's own seed: what the optimizer holds differs across ranks, and nobody trains."""
# expect: DDP307 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn


def build(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(9, 18), nn.LayerNorm(18), nn.GELU(), nn.Linear(18, 3))


def optimizer_of(model):
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=2e-3)


def create_model_and_optimizer():
    model = build(seed=dist.get_rank())
    return model, optimizer_of(model)


def pretrained():
    return build(seed=77)


def train():
    model, optimizer = create_model_and_optimizer()
    model = pretrained()
    if sys.argv[1] == "fixed":
        optimizer = optimizer_of(model)
    model = nn.parallel.DistributedDataParallel(model)
    data = torch.Generator().manual_seed(30 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(16, 9, generator=data)
        loss = nn.functional.cross_entropy(model(x), x.view(16, 3, 3).sum(dim=2).argmax(dim=1))
        model.zero_grad()
        loss.backward()
        optimizer.step()  # <- here


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
