# SPDX-License-Identifier: BSD-3-Clause
"""A batch that raises is skipped by try/except and continue, on the one rank that has it, after its forward."""
# expect: DDP502 step 4
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BadBatch(ValueError):
    pass


class AudioNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 8, 5, stride=2), nn.BatchNorm1d(8), nn.ReLU(),
            nn.Conv1d(8, 8, 5, stride=2), nn.BatchNorm1d(8), nn.ReLU(),
        )
        self.out = nn.Linear(8, 2)

    def forward(self, waves):
        return self.out(self.net(waves).mean(2))


def loss_of(logits, labels, strict):
    if labels.max() > 1:
        if strict:
            raise BadBatch(f"label {labels.max().item()} out of range")
        labels = labels.clamp(max=1)
    return nn.functional.cross_entropy(logits, labels)


def clips(rank):
    generator = torch.Generator().manual_seed(12 + rank)
    for i in range(9):
        waves = torch.randn(16, 1, 64, generator=generator)
        labels = (waves.std((1, 2)) > 1).long()
        if rank == 1 and i == 3:
            labels[5] = 7  # a broken annotation
        yield waves, labels


dist.init_process_group("gloo", timeout=timedelta(seconds=600))
torch.manual_seed(0)
model = DDP(AudioNet())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for waves, labels in clips(dist.get_rank()):
    try:
        logits = model(waves)
        loss = loss_of(logits, labels, strict=sys.argv[1] == "bug")
    except BadBatch as error:
        print("skipped a batch:", error)
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
