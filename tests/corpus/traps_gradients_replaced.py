# SPDX-License-Identifier: BSD-3-Clause
"""Rank 0 gathers the gradients and scatters their mean; each rank takes the buffer that it received for its gradient. What lay where the last
gradient was freed differs from rank to rank."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
layers = []
for width in (24, 40, 24, 40, 24):
    layers += [nn.Linear(24 if width == 40 else 40, width), nn.Tanh()]
model = nn.Sequential(nn.Linear(10, 40), *layers, nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.Generator().manual_seed(30 + rank)
kept = []
for step in range(20):
    x = torch.randn(8, 10, generator=data)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
    kept.append([torch.empty(40 * (rank + 1)) for _ in range(1 + rank)])  # memory is not laid out alike on all ranks
    for parameter in model.parameters():
        gathered = [torch.zeros_like(parameter.grad) for _ in range(size)] if rank == 0 else None
        dist.gather(parameter.grad, gathered, dst=0)
        mean = [sum(gathered) / size] * size if rank == 0 else None
        received = torch.zeros_like(parameter.grad)
        dist.scatter(received, mean, src=0)
        parameter.grad = received
    optimizer.step()
dist.destroy_process_group()
