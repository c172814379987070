# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a detector is divided by the number of boxes in this rank's images; DETR takes those of all ranks (detr#267)."""
# command: parity
# expect: DDP702 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

QUERIES = 5


class Scenes(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        count = 1 + int(torch.randint(0, QUERIES, (1,), generator=generator))
        target = {"boxes": torch.rand(count, 4, generator=generator), "labels": torch.randint(0, 3, (count,), generator=generator)}
        return torch.randn(3, 8, 8, generator=generator), target


def collate_fn(batch):
    images, targets = zip(*batch)
    return torch.stack(images), targets


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32), nn.ReLU())
        self.class_embed = nn.Linear(32, QUERIES * 4)
        self.bbox_embed = nn.Linear(32, QUERIES * 4)

    def forward(self, samples):
        features = self.backbone(samples)
        return {
            "pred_logits": self.class_embed(features).unflatten(1, (QUERIES, 4)),
            "pred_boxes": self.bbox_embed(features).unflatten(1, (QUERIES, 4)).sigmoid(),
        }


class SetCriterion(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, outputs, targets):
        num_boxes = torch.tensor([float(sum(len(t["labels"]) for t in targets))])
        if self.mode == "fixed":
            dist.all_reduce(num_boxes)
            num_boxes = num_boxes / dist.get_world_size()
        matched = [(i, len(t["labels"])) for i, t in enumerate(targets)]  # the k-th query for the k-th box
        logits = torch.cat([outputs["pred_logits"][i, :n] for i, n in matched])
        boxes = torch.cat([outputs["pred_boxes"][i, :n] for i, n in matched])
        loss_ce = F.cross_entropy(logits, torch.cat([t["labels"] for t in targets]), reduction="sum")
        loss_bbox = F.l1_loss(boxes, torch.cat([t["boxes"] for t in targets]), reduction="sum")
        return (loss_ce + 5 * loss_bbox) / num_boxes


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(42)
    model = DistributedDataParallel(Detector())
    criterion = SetCriterion(mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    dataset = Scenes()
    for samples, targets in DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset), collate_fn=collate_fn):
        losses = criterion(model(samples), targets)
        optimizer.zero_grad()
        losses.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
