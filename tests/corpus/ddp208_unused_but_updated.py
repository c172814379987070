# SPDX-License-Identifier: BSD-3-Clause
"""An expert gets no tokens for a while; zeroed gradients and weight decay go on moving it."""
# expect: DDP208 step 4 parameters experts.1.*
# also: DDP203
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Experts(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, 1)

    def forward(self, x, routed_to):
        hidden = torch.relu(self.embed(x))
        return self.head(sum(torch.relu(self.experts[index](hidden)) for index in routed_to))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(Experts(), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(10):
    x = torch.randn(16, 5, generator=generator)
    routed_to = [0, 1] if step < 3 else [0]  # the second expert specializes later
    loss = nn.functional.mse_loss(model(x, routed_to), x.abs().sum(1, keepdim=True))
    optimizer.zero_grad(set_to_none=sys.argv[1] == "fixed")
    loss.backward()
    optimizer.step()  # <- here
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
