# SPDX-License-Identifier: BSD-3-Clause
"""Rank 0 trains a model of the same shape alone, for a checkpoint that it loads before wrapping."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def pretrain(path):
    torch.manual_seed(123)
    net = build()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(20):
        x = torch.randn(32, 8)
        opt.zero_grad()
        F.cross_entropy(net(x), (x[:, 0] > 0).long()).backward()
        opt.step()
    torch.save({"model": net.state_dict()}, path)


def resume(model, path):
    if os.path.exists(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.gettempdir(), f"ckpt_{os.getpid()}.pt")  # scratch disk of the node
    if rank == 0:
        pretrain(path)
    dist.barrier()
    torch.manual_seed(0)
    net = build()
    resume(net, path)
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank + 5)
    for step in range(8):
        x = torch.randn(16, 8, generator=gen)
        loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        os.remove(path)
        print(loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
