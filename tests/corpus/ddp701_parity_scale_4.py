# SPDX-License-Identifier: BSD-3-Clause
"""No DataLoader and a loss written by hand: each rank takes its rows of a batch, and its mean is divided by the rows of the whole batch."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import random
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH = 12


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(4, 12, batch_first=True)
        self.position = nn.Linear(12, 2)

    def forward(self, readings):
        return self.position(self.recurrent(readings)[0])


def recordings(count):
    generator = torch.Generator().manual_seed(5)
    for _ in range(count):
        steps = int(torch.randint(4, 20, (), generator=generator))
        yield torch.randn(steps, 4, generator=generator), torch.randn(steps, 2, generator=generator)


def stack(sequences):
    longest = max(map(len, sequences))
    return torch.stack([nn.functional.pad(s, (0, 0, 0, longest - len(s))) for s in sequences])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = list(recordings(8 * BATCH))
    random.Random(1).shuffle(data)
    torch.manual_seed(0)
    model = DDP(Tracker())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for first in range(0, len(data), BATCH):
        mine = data[first:first + BATCH][rank::world]
        readings, positions = stack([r for r, _ in mine]), stack([p for _, p in mine])
        squares = (model(readings) - positions).square().sum(2)
        lengths = torch.tensor([len(r) for r, _ in mine])
        inside = torch.arange(squares.size(1)) < lengths.unsqueeze(1)
        rows = BATCH if sys.argv[1] == "bug" else len(mine)
        loss = ((squares * inside).sum(1) / lengths).sum() / rows
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
