# SPDX-License-Identifier: BSD-3-Clause
"""weight_norm after wrapping: the reducer waits for a weight that the module no longer has."""
# expect: DDP105 step 1 parameters 2.weight
# needs: torch>=2.1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm


def build(cfg):
    return nn.Sequential(nn.Linear(cfg["in"], cfg["hid"]), nn.ReLU(), nn.Linear(cfg["hid"], cfg["out"]))


def main(cfg):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = build(cfg)
    if sys.argv[1:] != ["bug"]:
        weight_norm(net[2])
    net = nn.parallel.DistributedDataParallel(net)  # <- here
    if sys.argv[1:] == ["bug"]:
        weight_norm(net.module[2])
    optim = torch.optim.SGD(net.parameters(), cfg["lr"])
    g = torch.Generator().manual_seed(9 + dist.get_rank())
    for _ in range(cfg["steps"]):
        x = torch.randn(16, cfg["in"], generator=g)
        optim.zero_grad()
        ((net(x) - x[:, :cfg["out"]]) ** 2).mean().backward()
        optim.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main({"in": 10, "hid": 20, "out": 4, "lr": 0.1, "steps": 8})
