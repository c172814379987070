# SPDX-License-Identifier: BSD-3-Clause
"""A mean in two levels: within hosts, among their first ranks, and back."""
# ranks: 4
import torch
import torch.distributed as dist
from torch import nn

LOCAL = 2


def topology():
    world, rank = dist.get_world_size(), dist.get_rank()
    hosts = [dist.new_group(list(range(h, h + LOCAL))) for h in range(0, world, LOCAL)]
    leaders = dist.new_group(list(range(0, world, LOCAL)))
    return hosts[rank // LOCAL], leaders


def hierarchical_mean(t, host, leaders):
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(t, group=host)
    if rank % LOCAL == 0:
        dist.all_reduce(t, group=leaders)
    dist.broadcast(t, src=rank - rank % LOCAL, group=host)
    t /= world


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    host, leaders = topology()
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(6):
        x = torch.randn(8, 6, generator=g)
        opt.zero_grad()
        (net(x) - x).pow(2).mean().backward()
        flat = nn.utils.parameters_to_vector([p.grad for p in net.parameters()])
        hierarchical_mean(flat, host, leaders)
        off = 0
        for p in net.parameters():
            p.grad.copy_(flat[off:off + p.numel()].view_as(p))
            off += p.numel()
        opt.step()
    dist.destroy_process_group()


main()
