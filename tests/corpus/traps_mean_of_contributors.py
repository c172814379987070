# SPDX-License-Identifier: BSD-3-Clause
"""Each domain has an adapter that only its ranks train: gradients are summed over all ranks and divided by how many have one."""
# ranks: 4
import torch
import torch.distributed as dist
from torch import nn


class Adapters(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.adapters = nn.ModuleList(nn.Linear(16, 8) for _ in range(2))

    def forward(self, x, domain):
        return self.adapters[domain](torch.tanh(self.body(x)))


def mean_of_contributors(parameters):
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        count = torch.tensor(float(bool(parameter.grad.any())))
        dist.all_reduce(count)
        dist.all_reduce(parameter.grad)
        parameter.grad /= count.clamp(min=1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Adapters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(16, 8, generator=data)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x, dist.get_rank() % 2), x.cumsum(1)).backward()
        mean_of_contributors(model.parameters())
        optimizer.step()
    dist.destroy_process_group()


main()
