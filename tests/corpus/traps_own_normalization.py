# SPDX-License-Identifier: BSD-3-Clause
"""FedBN: clients average their weights every few steps, all but the BatchNorm layers, which fit each client's own data."""
import torch
import torch.distributed as dist
from torch import nn

ROUND = 4


def block(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU())


def is_normalization(name, model):
    return isinstance(model.get_submodule(name.rpartition(".")[0]), nn.BatchNorm1d)


def merge(model):
    for name, parameter in model.named_parameters():
        if not is_normalization(name, model):
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()


dist.init_process_group("gloo")
client = dist.get_rank()
torch.manual_seed(14)
model = nn.Sequential(block(9, 20), block(20, 20), nn.Linear(20, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
data = torch.Generator().manual_seed(client)
for step in range(1, 25):
    x = torch.randn(30, 9, generator=data) * (1 + client) - client
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % ROUND == 0:
        merge(model)
dist.destroy_process_group()
