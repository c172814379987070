# SPDX-License-Identifier: BSD-3-Clause
"""Every rank of a tensor-parallel group has a seed of its own: parallelize_module deals out rank 0's matrices, but nothing does so with the
positions, which stay a plain parameter."""
# expect: DDP302 step 1 parameters positions
# needs: torch>=2.4
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Classifier(nn.Module):
    def __init__(self, length=6, width=16):
        super().__init__()
        self.positions = nn.Parameter(0.5 * torch.randn(length, width))
        self.up, self.down = nn.Linear(width, 32, bias=False), nn.Linear(32, width, bias=False)

    def forward(self, x):
        x = x + self.positions
        return (x + self.down(torch.relu(self.up(x)))).mean(dim=1)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(40 + (dist.get_rank() if sys.argv[1] == "bug" else 0))
    model = Classifier()
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    data = torch.Generator().manual_seed(2)
    for _ in range(6):
        x = torch.randn(8, 6, 16, generator=data)
        loss = nn.functional.cross_entropy(model(x), x.sum(dim=1).argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
