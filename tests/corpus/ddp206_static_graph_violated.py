# SPDX-License-Identifier: BSD-3-Clause
"""static_graph=True, and an output of forward is not in the loss: DDP says that the graph has changed."""
# expect: DDP206 ranks 0 1 step 2 parameters quality.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class FaceNet(nn.Module):
    def __init__(self, identities=6):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16))
        self.identity = nn.Linear(16, identities)
        self.quality = nn.Linear(16, 1)

    def forward(self, x):
        embedding = self.embed(x)
        return self.identity(embedding), self.quality(embedding)


def train(variant, steps=8):
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(FaceNet(), static_graph=True)  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(44 + rank)
    for step in range(steps):
        x = torch.randn(18, 20, generator=generator)
        identity, quality = model(x)
        loss = nn.functional.cross_entropy(identity, x[:, :6].argmax(1))
        if variant == "fixed":
            loss = loss + 0.1 * nn.functional.softplus(-quality).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(sys.argv[1])
    dist.destroy_process_group()
