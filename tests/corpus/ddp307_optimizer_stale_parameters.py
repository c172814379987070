# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer is built first, then the student is made as a copy of the teacher: gradients go to the copy."""
# expect: DDP307 step 1
import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MeanTeacher:
    def __init__(self, net, momentum=0.95):
        self.momentum = momentum
        self.teacher = net
        self.student = copy.deepcopy(net)
        self.teacher.eval()

    @torch.no_grad()
    def update_teacher(self):
        for old, new in zip(self.teacher.parameters(), self.student.parameters()):
            old.mul_(self.momentum).add_(new, alpha=1 - self.momentum)


def make_optimizer(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = make_optimizer(net)
    pair = MeanTeacher(net)
    if sys.argv[1] == "fixed":
        optimizer = make_optimizer(pair.student)
    model = DDP(pair.student)
    generator = torch.Generator().manual_seed(8 + rank)
    for step in range(10):
        x = torch.randn(20, 12, generator=generator)
        with torch.no_grad():
            soft = pair.teacher(x).softmax(1)
        logits = model(x + 0.1 * torch.randn(x.shape, generator=generator))
        consistency = nn.functional.kl_div(logits.log_softmax(1), soft, reduction="batchmean")
        loss = nn.functional.cross_entropy(logits, x[:, :4].argmax(1)) + 0.1 * consistency
        model.zero_grad()
        loss.backward()
        optimizer.step()  # <- here
        pair.update_teacher()
        if rank == 0 and step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
