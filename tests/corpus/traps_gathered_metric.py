# SPDX-License-Identifier: BSD-3-Clause
"""Before each backward the scores of all ranks are gathered, graph and all, for the accuracy; the loss is computed from the rank's own."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(40)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(rank)
for step in range(10):
    x = torch.randn(16, 12, generator=data)
    target = x[:, :4].argmax(1)
    scores = model(x)
    loss = nn.functional.cross_entropy(scores, target)
    all_scores = [torch.zeros_like(scores) for _ in range(world)]
    all_targets = [torch.zeros_like(target) for _ in range(world)]
    dist.all_gather(all_scores, scores)
    dist.all_gather(all_targets, target)
    right = (torch.cat(all_scores).argmax(1) == torch.cat(all_targets)).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    print(f"loss {loss.item():.3f}, {right:.0%} right")
dist.destroy_process_group()
