# SPDX-License-Identifier: BSD-3-Clause
"""Experts that fully_shard shards over the ranks with the same experts, with the number of all ranks as their divisor: tokens of all come to them."""
# ranks: 4
# needs: torch>=2.8
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 12


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, outgoing, incoming, group):
        ctx.reverse = incoming, outgoing, group
        out = rows.new_empty(sum(incoming), rows.size(1))
        dist.all_to_all_single(out, rows.contiguous(), incoming, outgoing, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return AllToAll.apply(grad, *ctx.reverse), None, None, None


class Experts(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.gate = nn.Linear(WIDTH, dist.get_world_size(group), bias=False)
        all_experts = [nn.Sequential(nn.Linear(WIDTH, 20), nn.ReLU(), nn.Linear(20, WIDTH)) for _ in range(dist.get_world_size(group))]
        self.own = all_experts[dist.get_rank(group)]

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort()
        outgoing = chosen.bincount(minlength=dist.get_world_size(self.group))
        incoming = torch.empty_like(outgoing)
        dist.all_to_all_single(incoming, outgoing, group=self.group)
        outgoing, incoming = outgoing.tolist(), incoming.tolist()
        served = self.own(AllToAll.apply(x[order], outgoing, incoming, self.group))
        back = AllToAll.apply(served, incoming, outgoing, self.group)
        return torch.zeros_like(x).index_copy(0, order, back) * weight[:, None]


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.first, self.norm = nn.Linear(9, WIDTH), nn.LayerNorm(WIDTH)
        self.experts = Experts(group)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(x + self.experts(self.norm(x)))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("edp", "ep"))
    torch.manual_seed(24)
    model = Model(mesh.get_group("ep"))
    fully_shard(model.experts.own, mesh=mesh["edp"])
    model.experts.own.set_gradient_divide_factor(float(world))
    model.experts.own.set_force_sum_reduction_for_comms(True)  # Gloo has no sum with a factor
    fully_shard(model, mesh=mesh["edp", "ep"]._flatten("dp"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    data = torch.Generator().manual_seed(90 + rank)
    for step in range(10):
        x = torch.randn(48, 9, generator=data)
        loss = F.cross_entropy(model(x), x[:, :4].argmax(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
