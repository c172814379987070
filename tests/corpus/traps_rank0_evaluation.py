# SPDX-License-Identifier: BSD-3-Clause
"""Rank 0 alone evaluates, with the inner module in eval mode and under no_grad; the others wait at a barrier."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2))
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        return self.out(self.features(x))


@torch.no_grad()
def accuracy(module, x, y):
    module.eval()
    hits = [(module(part).argmax(1) == truth).float().mean() for part, truth in zip(x.split(20), y.split(20))]
    module.train()
    return torch.stack(hits).mean().item()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
held_out = torch.randn(60, 12, generator=torch.Generator().manual_seed(1))
best = 0.0
for epoch in range(3):
    for _ in range(4):
        x = torch.randn(32, 12)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        score = accuracy(model.module, held_out, held_out[:, :3].argmax(1))
        best = max(best, score)
        print(f"epoch {epoch} accuracy {score:.3f} best {best:.3f}")
    dist.barrier()
print(f"rank {rank} loss {loss.item():.4f}")
dist.destroy_process_group()
