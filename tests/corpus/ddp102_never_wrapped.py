# SPDX-License-Identifier: BSD-3-Clause
"""A trainer class that copies rank 0's weights and averages the loss it logs, and nothing synchronizes gradients."""
# expect: DDP102 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, wrap):
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        self.model = DDP(model) if wrap else model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)  # <- here
        self.history = []

    def log(self, loss):
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        self.history.append(mean.item() / dist.get_world_size())

    def fit(self, batches):
        for features, target in batches:
            loss = nn.functional.smooth_l1_loss(self.model(features).squeeze(-1), target)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.log(loss)


def shard(rank, count=6):
    generator = torch.Generator().manual_seed(900 + rank)
    for _ in range(count):
        features = torch.rand(20, 9, generator=generator)
        yield features, features[:, 0] - features[:, 1:4].prod(dim=1)


dist.init_process_group("gloo")
torch.manual_seed(6)
trainer = Trainer(nn.Sequential(nn.Linear(9, 24), nn.GELU(), nn.Linear(24, 1)), wrap=sys.argv[1] == "fixed")
trainer.fit(shard(dist.get_rank()))
if dist.get_rank() == 0:
    print(f"loss {trainer.history[0]:.4f} -> {trainer.history[-1]:.4f}")
dist.destroy_process_group()
