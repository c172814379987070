# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile of a wrapped model, with inductor (C++ on the CPU) and with aot_eager."""
# needs: torch>=2.1
import hashlib
import shutil

import torch
import torch._inductor.config
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(backend, rank, steps):
    torch.manual_seed(8)
    model = DDP(Net())
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(50 + rank)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 32, generator=generator)
        loss = nn.functional.cross_entropy(compiled(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model.module, losses


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    backends = ["aot_eager"]
    if shutil.which("g++") or shutil.which("clang++"):
        backends.insert(0, "inductor")
        # Not its vector code: on some machines it wants functions that torch's libraries do not export.
        torch._inductor.config.cpp.simdlen = 1

    digest = hashlib.sha256()
    for backend in backends:
        net, losses = train(backend, rank, steps=12)
        if rank == 0:
            print(f"{backend}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        for tensor in net.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        digest.update(repr(losses).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
