# SPDX-License-Identifier: BSD-3-Clause
"""Local SGD: every third step the ranks average the weights of the encoder, and those of the head, which another list holds, never."""
# expect: DDP104 ranks 0 1 step 1 parameters head.*
import sys

import torch
import torch.distributed as dist
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 24), nn.SiLU())
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


@torch.no_grad()
def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter)
        parameter /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    noise = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 16):
        x = torch.randn(16, 6, generator=noise)
        loss = nn.functional.mse_loss(model(x), torch.stack([x.sum(1), x.prod(1)], 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            average(model.parameters() if sys.argv[1] == "fixed" else model.encoder.parameters())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
