# SPDX-License-Identifier: BSD-3-Clause
"""ZeRO-1 by hand: each rank steps on its slice of a flat copy of the weights, and the slices are gathered."""
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ShardedAdam:
    """Optimizer state for 1/world of the parameters on each rank."""

    def __init__(self, module, **kwargs):
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        for p in self.params:
            dist.broadcast(p.data, src=0)
        self.numel = sum(p.numel() for p in self.params)
        self.chunk = math.ceil(self.numel / self.world)
        self.master = self._flat(p.data for p in self.params).chunk(self.world)[self.rank].clone()
        self.adam = torch.optim.AdamW([self.master], **kwargs)

    def _flat(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return F.pad(flat, (0, self.chunk * self.world - self.numel))

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        grad = self._flat(p.grad for p in self.params)
        dist.all_reduce(grad)
        grad /= self.world
        norm = grad.norm()
        grad *= min(1.0, 1.0 / (norm.item() + 1e-6))
        self.master.grad = grad.chunk(self.world)[self.rank].clone()
        self.adam.step()
        slices = [torch.empty_like(self.master) for _ in range(self.world)]
        dist.all_gather(slices, self.master)
        flat, at = torch.cat(slices), 0
        for p in self.params:
            p.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()


class GatedUnit(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.value(x) * torch.sigmoid(self.gate(x))


class Regressor(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.embed = nn.Linear(5, dim)
        self.units = nn.ModuleList(GatedUnit(dim) for _ in range(2))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = self.embed(x)
        for unit in self.units:
            h = unit(h)
        return self.out(h).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = Regressor()
    optimizer = ShardedAdam(model, lr=1e-2, weight_decay=1e-2)
    gen = torch.Generator().manual_seed(rank)
    for step in range(25):
        x = torch.randn(32, 5, generator=gen)
        loss = F.mse_loss(model(x), x[:, 0] * x[:, 1] + x[:, 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
