# SPDX-License-Identifier: BSD-3-Clause
"""Mean teacher: the teacher is copied from a student that each rank drew from its own seed; only the student gets rank 0's weights."""
# expect: DDP302 ranks 0 1 step 1
import copy
import os
import sys

import torch
import torch.nn.functional as F
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])


class Classifier(nn.Module):
    def __init__(self, features=12, classes=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, 40), nn.GELU(), nn.Linear(40, 40), nn.GELU())
        self.head = nn.Linear(40, classes)

    def forward(self, x):
        return self.head(self.trunk(x))


class MeanTeacher:
    def __init__(self, student, decay=0.99):
        self.model, self.decay = copy.deepcopy(student).requires_grad_(False), decay

    @torch.no_grad()
    def __call__(self, x):
        return self.model(x).softmax(1)

    @torch.no_grad()
    def follow(self, student):
        for mine, theirs in zip(self.model.parameters(), student.parameters()):
            mine.lerp_(theirs, 1 - self.decay)


def build(bug):
    torch.manual_seed(1234 + RANK)
    net = Classifier()
    if bug:
        teacher = MeanTeacher(net)
        return DistributedDataParallel(net), teacher
    student = DistributedDataParallel(net)
    return student, MeanTeacher(student.module)


def main(mode):
    dist.init_process_group("gloo")
    student, teacher = build(mode == "bug")
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    centres = torch.randn(4, 12, generator=torch.Generator().manual_seed(0)) * 2
    for _ in range(24):
        target = torch.randint(4, (16,))
        clean = centres[target] + torch.randn(16, 12)
        logits = student(clean + 0.3 * torch.randn_like(clean))
        loss = F.cross_entropy(logits, target) + F.mse_loss(logits.softmax(1), teacher(clean))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.follow(student)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
