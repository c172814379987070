# SPDX-License-Identifier: BSD-3-Clause
"""clip_grad_norm_ stands inside the accumulation loop: it cuts local sums, before the last micro-batch averages."""
# expect: DDP108 step 1
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE, CLIP = 3, 0.1


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(60, 16)
        self.score = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, pair):
        return self.score(self.items(pair).flatten(1)).squeeze(1)


def micro_batches(rank):
    generator = torch.Generator().manual_seed(500 + rank)
    while True:
        pair = torch.randint(0, 60, (12, 2), generator=generator)
        yield pair, (pair[:, 0] > pair[:, 1]).float()


dist.init_process_group("gloo")
torch.manual_seed(8)
model = DDP(Ranker())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
stream = micro_batches(dist.get_rank())
for step in range(8):
    for micro in range(ACCUMULATE):
        last = micro == ACCUMULATE - 1
        pair, first_is_larger = next(stream)
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.binary_cross_entropy_with_logits(model(pair), first_is_larger)
            (loss / ACCUMULATE).backward()
        if last or sys.argv[1] == "bug":
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0 and step % 3 == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
