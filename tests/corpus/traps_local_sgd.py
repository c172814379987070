# SPDX-License-Identifier: BSD-3-Clause
"""Post-local SGD: after a warm-up gradients are averaged inside each node only, weights of all nodes every fourth step."""
# ranks: 4
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

WARMUP_STEPS = 4
RANKS_PER_NODE = 2


class ResidualMLP(nn.Module):
    def __init__(self, features=14, width=32, classes=3):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        for layer in self.hidden:
            h = h + torch.relu(layer(h))
        return self.out(self.norm(h))


def node_group():
    rank, mine = dist.get_rank(), None
    for first in range(0, dist.get_world_size(), RANKS_PER_NODE):
        ranks = list(range(first, first + RANKS_PER_NODE))
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = group
    return mine


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DDP(ResidualMLP())
    state = PostLocalSGDState(process_group=None, subgroup=node_group(), start_localSGD_iter=WARMUP_STEPS)
    model.register_comm_hook(state, post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        averager=PeriodicModelAverager(period=4, warmup_steps=WARMUP_STEPS),
    )
    gen = torch.Generator().manual_seed(200 + rank)
    for step in range(16):
        x = torch.randn(24, 14, generator=gen)
        y = x[:, :3].argmax(dim=1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
