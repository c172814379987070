# SPDX-License-Identifier: BSD-3-Clause
"""fully_shard over tensor parallelism, the whole model gathered at once: what stands for the shards in the forward are DTensors, too, and their
memory is freed after the backward. Then a second model, with replicas of each
shard: its shards differ from the start."""
# ranks: 4
# needs: torch>=2.7
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def train(mesh, hybrid):
    model = Block(8) if hybrid else nn.Sequential(Block(8), Block(8))
    if hybrid:
        fully_shard(model, mesh=mesh)
    else:
        for block in model:
            parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(20 + (dist.get_rank() if hybrid else mesh["dp"].get_local_rank()))
    for _ in range(6):
        x = torch.randn(4, 8, generator=data)
        loss = (model(x) - x.sin()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    train(mesh, hybrid=False)
    train(mesh, hybrid=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
