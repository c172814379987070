# SPDX-License-Identifier: BSD-3-Clause
"""A search of settings: every rank trains a model of its own with its own learning rate and seed, and only their scores are gathered."""
# ranks: 4
# verdict: inconclusive
import torch
import torch.distributed as dist
from torch import nn

RATES = (0.3, 0.1, 0.03, 0.01)


def fit(rank, steps):
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATES[rank], momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    data = torch.Generator().manual_seed(55)
    for _ in range(steps):
        x = torch.randn(32, 5, generator=data)
        loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.detach()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    score = fit(dist.get_rank(), 25)
    scores = [torch.zeros(()) for _ in RATES]
    dist.all_gather(scores, score)
    if dist.get_rank() == 0:
        print(f"best learning rate: {RATES[int(torch.stack(scores).argmin())]}")
    dist.destroy_process_group()
