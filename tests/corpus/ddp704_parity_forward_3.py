# SPDX-License-Identifier: BSD-3-Clause
"""The load-balancing loss of a mixture of experts counts each rank's own tokens; a product of means, it depends on how they are dealt out (Megatron-LM#1498)."""
# command: parity
# expect: DDP704 ranks 0 1 step 1 parameters router.*
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Router(nn.Linear):
    """Softmax over experts; also how many tokens prefer each."""

    def forward(self, x):
        probabilities = super().forward(x).softmax(dim=-1)
        return probabilities, F.one_hot(probabilities.argmax(-1), self.out_features).float().mean(0)


class MixtureOfExperts(nn.Module):
    def __init__(self, width=8, experts=4):
        super().__init__()
        self.router = Router(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        probabilities, share = self.router(x)
        mixed = sum(p.unsqueeze(1) * expert(x) for p, expert in zip(probabilities.unbind(1), self.experts))
        return self.head(x + torch.tanh(mixed)), probabilities.mean(0), share


def main(global_balance):
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DDP(MixtureOfExperts())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = TensorDataset(torch.randn(160, 8), torch.randint(0, 3, (160,)))
    for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
        logits, importance, share = model(x)
        if global_balance:
            dist.all_reduce(share)
            share = share / dist.get_world_size()
        loss = F.cross_entropy(logits, y) + 0.1 * len(share) * (share * importance).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] == "fixed")
