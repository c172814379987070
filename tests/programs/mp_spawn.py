# SPDX-License-Identifier: BSD-3-Clause
"""Starts its own ranks with torch.multiprocessing.spawn, on a port that it finds free."""
import argparse
import hashlib
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def worker(rank, world_size, port, arguments):
    setup(rank, world_size, port)
    torch.set_num_threads(1)
    torch.manual_seed(42)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ELU(), nn.Linear(20, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
    torch.manual_seed(42 + rank)
    losses = []
    for _ in range(arguments.steps):
        inputs = torch.randn(20, 10)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, ::2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(losses).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    arguments = parser.parse_args()
    mp.spawn(worker, args=(arguments.world_size, free_port(), arguments), nprocs=arguments.world_size, join=True)


if __name__ == "__main__":
    main()
