# SPDX-License-Identifier: BSD-3-Clause
"""A loss keeps a moving average of its targets, for centering; each rank averages over its own batch only."""
# expect: DDP303 step 1 parameters CenteredLoss.center
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class CenteredLoss(nn.Module):
    def __init__(self, size, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("center", torch.zeros(1, size))
        # Samples of this rank, to compare with later ones: not meant to be equal.
        self.register_buffer("bank", torch.zeros(64, size))
        self.at = 0

    def forward(self, student, teacher):
        targets = F.softmax((teacher - self.center) / 0.1, dim=-1).detach()
        loss = -(targets * F.log_softmax(student, dim=-1)).sum(-1).mean()
        self.update(teacher)
        return loss

    @torch.no_grad()
    def update(self, teacher):
        center = teacher.mean(0, keepdim=True)
        if sys.argv[1] == "fixed":
            dist.all_reduce(center)
            center /= dist.get_world_size()
        self.center = self.center * self.momentum + center * (1 - self.momentum)
        self.bank[self.at:self.at + len(teacher)] = teacher
        self.at = (self.at + len(teacher)) % len(self.bank)


def network():
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 16))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    student, teacher = network(), network()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    student = DDP(student)
    criterion = CenteredLoss(16)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    views = torch.Generator().manual_seed(int(os.environ["RANK"]))
    for _ in range(12):
        images = torch.randn(8, 12, generator=views)
        loss = criterion(student(images + 0.1 * torch.randn(8, 12, generator=views)), teacher(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(teacher.parameters(), student.module.parameters()):
                ours.mul_(0.99).add_(theirs, alpha=0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
