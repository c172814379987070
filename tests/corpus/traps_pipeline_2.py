# SPDX-License-Identifier: BSD-3-Clause
"""A pipeline by hand whose ranks each build the whole model and give all of it to their optimizers: a rank trains its own layers only."""
import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    layers = nn.ModuleList([nn.Sequential(nn.Linear(12, 16), nn.GELU()), nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)), nn.Linear(16, 3)])
    mine = layers[:1] if rank == 0 else layers[1:]
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-2)
    data, labels = torch.randn(160, 12), torch.randint(0, 3, (160,))
    for step in range(10):
        batch = slice(16 * step, 16 * step + 16)
        hidden = data[batch] if rank == 0 else torch.empty(16, 16)
        if rank == 1:
            dist.recv(hidden, 0)
            received = hidden.requires_grad_()
        for layer in mine:
            hidden = layer(hidden)
        if rank == 1:
            nn.functional.cross_entropy(hidden, labels[batch]).backward()
            dist.send(received.grad, 0)
        else:
            dist.send(hidden.detach(), 1)
            gradient = torch.empty(16, 16)
            dist.recv(gradient, 1)
            hidden.backward(gradient)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
