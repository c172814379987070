# SPDX-License-Identifier: BSD-3-Clause
"""A critic and a generator; every forward of the generator runs under no_sync, as the critic's turn needs it."""
# expect: DDP103 ranks 0 1 step 2
# The generator is wrapped first, and steps second.
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LATENT, POINTS = 6, 10


def generator():
    return nn.Sequential(nn.Linear(LATENT, 24), nn.Tanh(), nn.Linear(24, POINTS))


def critic():
    return nn.Sequential(nn.Linear(POINTS, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))


class Adversaries:
    def __init__(self, synchronizes):
        torch.manual_seed(21)
        self.G, self.D = DDP(generator()), DDP(critic())
        self.of_G = torch.optim.RMSprop(self.G.parameters(), lr=1e-3)
        self.of_D = torch.optim.RMSprop(self.D.parameters(), lr=1e-3)
        self.synchronizes = synchronizes

    def fake(self, count, noise, alone):
        with self.G.no_sync() if alone else contextlib.nullcontext():
            return self.G(torch.randn(count, LATENT, generator=noise))

    def turn_of_D(self, real, noise):
        with torch.no_grad():
            fake = self.fake(len(real), noise, alone=True)
        scores = self.D(torch.cat([fake, real])).flatten()
        self.of_D.zero_grad()
        (scores[: len(real)].mean() - scores[len(real) :].mean()).backward()
        self.of_D.step()

    def turn_of_G(self, count, noise):
        for parameter in self.D.parameters():
            parameter.requires_grad_(False)
        score = self.D.module(self.fake(count, noise, alone=not self.synchronizes)).mean()
        self.of_G.zero_grad()
        (-score).backward()
        self.of_G.step()  # <- here
        for parameter in self.D.parameters():
            parameter.requires_grad_(True)


def main():
    dist.init_process_group("gloo")
    noise = torch.Generator().manual_seed(70 + dist.get_rank())
    both = Adversaries(sys.argv[1] == "fixed")
    for _ in range(6):
        both.turn_of_D(torch.randn(8, POINTS, generator=noise).cumsum(1), noise)
        both.turn_of_G(8, noise)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
