# SPDX-License-Identifier: BSD-3-Clause
"""Two means, weighted, are added to the loss, and its gradients are summed over the ranks: twice those of the mean."""
# expect: DDP107 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn


def synchronize(model, fixed):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        if fixed:
            parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(31)
    trunk, heads = nn.Sequential(nn.Linear(10, 40), nn.Mish()), nn.ModuleDict({"kind": nn.Linear(40, 5), "size": nn.Linear(40, 1)})
    model = nn.ModuleDict({"trunk": trunk, "heads": heads})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(9):
        x = torch.randn(12, 10, generator=data)
        hidden = trunk(x)
        kind = nn.functional.cross_entropy(heads["kind"](hidden), x[:, :5].argmax(1))
        size = nn.functional.mse_loss(heads["size"](hidden).squeeze(1), x.sum(1))
        loss = 0.7 * kind + 0.3 * size
        optimizer.zero_grad()
        loss.backward()
        synchronize(model, fixed=sys.argv[1] == "fixed")
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
