# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism with parallelize_module: DTensor parameters, plain norms, and the same batch on all ranks."""
# needs: torch>=2.4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate, self.value = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.out(F.silu(self.gate(y)) * self.value(y))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(5, 16), Gated(16), Gated(16), nn.Linear(16, 1))
    plan = {"gate": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel()}
    for block in model[1:3]:
        parallelize_module(block, mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    data = torch.Generator().manual_seed(8)
    for step in range(8):
        x = torch.randn(24, 5, generator=data)
        loss = F.mse_loss(model(x).squeeze(-1), x.prod(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
