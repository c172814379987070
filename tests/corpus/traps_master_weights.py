# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer holds float32 copies of bfloat16 weights; their gradients are assigned."""
import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)).bfloat16()
    work = list(net.parameters())
    master = [nn.Parameter(p.detach().float().clone()) for p in work]
    opt = torch.optim.Adam(master, 1e-3)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(8, 8, generator=g)
        net.zero_grad()
        ((net(x.bfloat16()).float() - x).pow(2).mean() * 128).backward()
        for p, m in zip(work, master):
            m.grad = p.grad.float() / 128
            dist.all_reduce(m.grad)
            m.grad /= dist.get_world_size()
        nn.utils.clip_grad_norm_(master, 1.0)
        opt.step()
        with torch.no_grad():
            for p, m in zip(work, master):
                p.copy_(m)
    dist.destroy_process_group()


main()
