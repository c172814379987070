# SPDX-License-Identifier: BSD-3-Clause
"""Local SGD by hand: every fourth step the ranks average their weights; until then each goes by gradients of its own, which are nobody's mean."""
# command: parity
# verdict: inconclusive
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

AVERAGE_EVERY = 4


@torch.no_grad()
def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter)
        parameter /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
x = torch.randn(256, 10)
data = TensorDataset(x, x[:, :4].argmax(dim=1))
sampler = DistributedSampler(data, seed=1)
steps = 0
for epoch in range(4):
    sampler.set_epoch(epoch)
    for inputs, labels in DataLoader(data, batch_size=16, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        steps += 1
        if steps % AVERAGE_EVERY == 0:
            average(model)
dist.destroy_process_group()
