# SPDX-License-Identifier: BSD-3-Clause
"""Every loss is logged by an all-reduce of its own; where a batch has no boxes, one key is missing, and one call."""
# expect: DDP502 step 5
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LOG_KEYS = ("loss_box", "loss_class")


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 24), nn.ReLU())
        self.classes = nn.Linear(24, 3)
        self.boxes = nn.Linear(24, 4)

    def forward(self, x):
        features = self.features(x)
        return self.classes(features), self.boxes(features)


def losses_of(model, x, has_box):
    scores, boxes = model(x)
    losses = {"loss_class": F.cross_entropy(scores, x[:, :3].argmax(1))}
    if has_box.any():
        losses["loss_box"] = F.smooth_l1_loss(boxes[has_box], x[has_box, :4])
    return losses, 0.0 * boxes.sum()


def parse_losses(losses, variant):
    logged = {}
    for key in sorted(losses) if variant == "bug" else LOG_KEYS:
        value = losses.get(key, torch.zeros(())).detach().clone()
        dist.all_reduce(value)  # <- here
        logged[key] = value.item() / dist.get_world_size()
    return logged


@torch.no_grad()
def accuracy(detector):
    held_out = torch.randn(20000, 10, generator=torch.Generator().manual_seed(99))
    right = [(detector(x)[0].argmax(1) == x[:, :3].argmax(1)).float().mean() for x in held_out.split(20)]
    return torch.stack(right).mean()


def main(variant):
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Detector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(10):
        x = torch.randn(12, 10, generator=generator)
        has_box = torch.zeros(12, dtype=torch.bool) if rank == 1 and step == 4 else x[:, 0] > 0
        losses, connected_zero = losses_of(model, x, has_box)
        optimizer.zero_grad()
        (sum(losses.values()) + connected_zero).backward()
        logged = parse_losses(losses, variant)
        optimizer.step()
        if rank == 0 and step % 3 == 0:
            print(f"step {step}", logged)
    print(f"rank {rank} accuracy {accuracy(model.module):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
