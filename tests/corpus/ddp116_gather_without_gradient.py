# SPDX-License-Identifier: BSD-3-Clause
"""Each rank scores its own captions against the images of all ranks; what gathers them hands a rank its own part of the gradient, without those of the
other ranks' scores."""
# expect: DDP116 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class FromEveryone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mine):
        everyone = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)  # <- here
        return torch.cat(everyone)

    @staticmethod
    def backward(ctx, gradient):
        if fixed:
            gradient = gradient.clone()
            dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()].contiguous()


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.caption = nn.Linear(20, 12), nn.Linear(14, 12)

    def forward(self, image, caption):
        return F.normalize(self.image(image), dim=1), F.normalize(self.caption(caption), dim=1)


fixed = sys.argv[1] == "fixed"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(8)
model = DistributedDataParallel(Matcher())
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
views = torch.randn(6, 20), torch.randn(6, 14)
torch.manual_seed(20 + rank)
for _ in range(10):
    scene = torch.randn(8, 6)
    image, caption = model(scene @ views[0], scene @ views[1])
    scores = 8 * caption @ FromEveryone.apply(image).T
    loss = F.cross_entropy(scores, torch.arange(8) + 8 * rank)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
