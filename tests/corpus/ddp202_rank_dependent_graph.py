# SPDX-License-Identifier: BSD-3-Clause
"""A detector trains its box head only where there are positive anchors; one rank gets a batch without any."""
# expect: DDP202 step 4 parameters box_head.*
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.class_head = nn.Linear(32, 1)
        self.box_head = nn.Linear(32, 4)

    def forward(self, anchors):
        features = self.backbone(anchors)
        return self.class_head(features).squeeze(1), self.box_head(features)


def detection_loss(scores, boxes, fg_mask, target_boxes):
    loss_cls = F.binary_cross_entropy_with_logits(scores, fg_mask.float())
    if fg_mask.sum() > 0:
        loss_box = F.l1_loss(boxes[fg_mask], target_boxes[fg_mask])
    elif sys.argv[1] == "bug":
        loss_box = torch.tensor(0.0)
    else:
        loss_box = boxes.sum() * 0.0
    return loss_cls + 2.0 * loss_box


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Detector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.Generator().manual_seed(20 + rank)
    for step in range(10):
        anchors = torch.randn(30, 12, generator=images)
        background_only = rank == 1 and step == 3
        fg_mask = torch.zeros(30, dtype=torch.bool) if background_only else anchors[:, 0] > 0.8
        scores, boxes = model(anchors)  # <- here
        loss = detection_loss(scores, boxes, fg_mask, anchors[:, :4].tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
