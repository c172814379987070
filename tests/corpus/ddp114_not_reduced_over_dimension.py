# SPDX-License-Identifier: BSD-3-Clause
"""Sequence parallel with DTensor: a norm of one's own takes its local weight, and its gradient over a part of the sequence counts as whole."""
# expect: DDP114 ranks 0 1 step 1 parameters *norm.scale
# needs: torch>=2.6
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class ScaleNorm(nn.Module):
    """RMS norm of activations that are split along the sequence."""

    def __init__(self, mesh, width):
        super().__init__()
        self.mesh = mesh
        self.scale = nn.Parameter(distribute_tensor(torch.ones(width), mesh, [Replicate()]))

    def forward(self, x):
        placements = [Partial()] if sys.argv[1] == "fixed" else None
        scale = self.scale.to_local(grad_placements=placements)
        local = x.to_local()
        local = scale * local * torch.rsqrt(local.square().mean(-1, keepdim=True) + 1e-6)
        return DTensor.from_local(local, self.mesh, [Shard(1)])


class Block(nn.Module):
    def __init__(self, mesh, width):
        super().__init__()
        self.norm = ScaleNorm(mesh, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        whole = self.norm(x).redistribute(placements=[Replicate()])
        return x + self.down(F.gelu(self.up(whole)))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(11)
    blocks = nn.ModuleList(Block(mesh, 16) for _ in range(2))
    for block in blocks:
        parallelize_module(block, mesh, {
            "up": ColwiseParallel(use_local_output=False),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        })
    optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-2, foreach=False)
    batches = torch.Generator().manual_seed(5)
    for _ in range(10):
        signal = torch.randn(4, 8, 16, generator=batches)
        x = distribute_tensor(signal, mesh, [Shard(1)])
        for block in blocks:
            x = block(x)
        loss = (x.full_tensor() - signal.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
