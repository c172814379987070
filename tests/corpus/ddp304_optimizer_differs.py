# SPDX-License-Identifier: BSD-3-Clause
"""The cosine schedule is as long as this rank's shard, and the shards are not equally long."""
# expect: DDP304 step 2
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def load_shard(rank):
    samples = [220, 160][rank % 2]
    x = torch.randn(samples, 11, generator=torch.Generator().manual_seed(rank))
    return TensorDataset(x, x.cos().sum(1, keepdim=True))


class Training:
    def __init__(self, rank, variant):
        torch.manual_seed(15)
        loader = DataLoader(load_shard(rank), batch_size=20, shuffle=True)
        shortest = torch.tensor(len(loader))
        dist.all_reduce(shortest, op=dist.ReduceOp.MIN)
        self.loader, self.steps = loader, int(shortest)  # the ranks stop together
        self.model = DDP(nn.Sequential(nn.Linear(11, 33), nn.ReLU(), nn.Linear(33, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        schedule_length = len(loader) if variant == "bug" else self.steps
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=schedule_length)

    def run(self):
        for _, (x, y) in zip(range(self.steps), self.loader):
            loss = nn.functional.l1_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()  # <- here
            self.scheduler.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    loss = Training(dist.get_rank(), sys.argv[1]).run()
    print(f"rank {dist.get_rank()} loss {loss:.4f}")
    dist.destroy_process_group()
