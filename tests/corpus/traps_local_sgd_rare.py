# SPDX-License-Identifier: BSD-3-Clause
"""Federated averaging: every 35 steps rank 0 collects the weights by reduce and sends their mean back by broadcast."""
import torch
import torch.distributed as dist
from torch import nn

ROUNDS, LOCAL_STEPS = 3, 35


@torch.no_grad()
def federated_average(model, clients):
    for weight in model.parameters():
        dist.reduce(weight.data, dst=0)
        if dist.get_rank() == 0:
            weight.data.div_(clients)
        dist.broadcast(weight.data, src=0)


dist.init_process_group("gloo")
client, clients = dist.get_rank(), dist.get_world_size()
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(13, 32), nn.Sigmoid(), nn.Linear(32, 1))
sgd = torch.optim.SGD(model.parameters(), lr=0.02)
own = torch.Generator().manual_seed(70 + client)
houses = torch.randn(64, 13, generator=own)
prices = houses.sum(1, keepdim=True) + 0.1 * client
for _ in range(ROUNDS):
    for _ in range(LOCAL_STEPS):
        picked = torch.randint(len(houses), (16,), generator=own)
        loss = nn.functional.mse_loss(model(houses[picked]), prices[picked])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    federated_average(model, clients)
dist.destroy_process_group()
