# SPDX-License-Identifier: BSD-3-Clause
"""A detector trains its mask branch only on batches that have masks, and one rank's shard has none. The trainer catches whatever is raised,
saves what it can and exits with status 1."""
# expect: DDP202 ranks 1 step 1 parameters masks.*
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
        self.boxes = nn.Conv2d(6, 4, 1)
        self.masks = nn.Conv2d(6, 1, 1)

    def forward(self, images, targets):
        features = self.backbone(images)
        losses = {"boxes": F.smooth_l1_loss(self.boxes(features), targets["boxes"])}
        if targets["masks"] is not None:
            losses["masks"] = F.binary_cross_entropy_with_logits(self.masks(features), targets["masks"])
        elif sys.argv[1] == "fixed":
            losses["masks"] = 0.0 * self.masks(features).sum()
        return losses


class Trainer:
    def __init__(self):
        torch.manual_seed(11)
        self.rank = dist.get_rank()
        self.model = DDP(Detector())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.data = torch.Generator().manual_seed(20 + self.rank)

    def batches(self):
        for _ in range(6):
            images = torch.rand(4, 1, 8, 8, generator=self.data)
            masks = (images > 0.7).float() if self.rank == 0 else None
            yield images, {"boxes": images.expand(4, 4, 8, 8) * 2, "masks": masks}

    def fit(self):
        try:
            for images, targets in self.batches():
                loss = sum(self.model(images, targets).values())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        except Exception:
            traceback.print_exc()
            return 1
        return 0


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    status = Trainer().fit()
    if status == 0:
        dist.destroy_process_group()
    sys.exit(status)
