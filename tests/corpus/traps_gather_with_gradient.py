# SPDX-License-Identifier: BSD-3-Clause
"""Each rank scores its own captions against the images of all ranks, which torch.distributed.nn gathers: PyTorch sends their gradients back."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.caption = nn.Linear(20, 12), nn.Linear(14, 12)

    def forward(self, image, caption):
        return F.normalize(self.image(image), dim=1), F.normalize(self.caption(caption), dim=1)


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
    images, captions = torch.cat(all_gather(image)), torch.cat(all_gather(caption))
    targets = torch.arange(8) + 8 * rank
    loss = F.cross_entropy(8 * caption @ images.T, targets) + F.cross_entropy(8 * image @ captions.T, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
