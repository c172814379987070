# SPDX-License-Identifier: BSD-3-Clause
"""A batch that is too long for the model is skipped by the rank that has it; the others wait for its gradients."""
# expect: DDP502 ranks 1 step 5..10
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_LEN = 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 8)
        self.pos = nn.Parameter(torch.zeros(MAX_LEN, 8))
        self.ff = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, ids):
        return self.ff((self.emb(ids) + self.pos[: ids.size(1)]).mean(1))


def sample(rank, step):
    g = torch.Generator().manual_seed(rank * 31 + step)
    n = 40 if (rank == 1 and step == 4) else int(torch.randint(5, 20, (1,), generator=g))
    return torch.randint(0, 30, (4, n), generator=g), torch.randint(0, 3, (4,), generator=g)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Model())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    skipped = 0
    for step in range(10):
        ids, y = sample(rank, step)
        if sys.argv[1] == "fixed":
            ids = ids[:, :MAX_LEN]
        opt.zero_grad()
        try:
            loss = F.cross_entropy(model(ids), y)
            loss.backward()
        except RuntimeError as e:
            print(f"rank {rank}: skipping batch {step}: {e}")
            skipped += 1
            continue
        opt.step()
    if rank == 0:
        print("done", loss.item(), skipped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
