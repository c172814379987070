# SPDX-License-Identifier: BSD-3-Clause
"""Two views, two forwards of the wrapper, then a backward for each: the second one finds the reducer disarmed."""
# expect: DDP109 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 16))

    def forward(self, x):
        return F.normalize(self.body(x), dim=1)


def augment(x, generator):
    return x + 0.1 * torch.randn(x.shape, generator=generator)


def similarity_loss(query, key):
    logits = query @ key.t() / 0.2
    return F.cross_entropy(logits, torch.arange(len(query)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    encoder = DDP(Encoder())
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(60 + dist.get_rank())
    for step in range(8):
        images = torch.randn(16, 20, generator=generator)
        first = encoder(augment(images, generator))
        second = encoder(augment(images, generator))
        forth = similarity_loss(first, second.detach())
        back = similarity_loss(second, first.detach())
        optimizer.zero_grad()
        if sys.argv[1] == "bug":
            forth.backward()
            back.backward()  # <- here
        else:
            (forth + back).backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 3 == 0:
            print(f"step {step} loss {(forth + back).item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
