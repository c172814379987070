# SPDX-License-Identifier: BSD-3-Clause
"""What large trainers do besides a step: a reference model that every rank trains alike, BatchNorm statistics averaged once per epoch, an
optimizer that averages the gradients of a probe itself, and an exit status that asks the scheduler to start the job again."""
import copy
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

REQUEUE = 85


class AveragingSGD(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        held = [(p, group["lr"]) for group in self.param_groups for p in group["params"]]
        works = [dist.all_reduce(p.grad, async_op=True) for p, _ in held]
        for (p, lr), work in zip(held, works):
            work.wait()
            p.sub_(p.grad, alpha=lr / dist.get_world_size())


def reference_training(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(6):
        x = torch.randn(32, 7, generator=data)
        optimizer.zero_grad()
        F.mse_loss(model(x).squeeze(-1), x.norm(dim=1)).backward()
        optimizer.step()


def average_statistics(model):
    for name, buffer in model.named_buffers():
        if "running_" in name:
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(7, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    reference, probe = copy.deepcopy(net), nn.Linear(7, 1)
    reference_training(reference, torch.Generator().manual_seed(0))
    model = DDP(net, broadcast_buffers=False)
    optimizer, averaging = torch.optim.AdamW(model.parameters(), lr=1e-2), AveragingSGD(probe.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(100 + rank)
    for _ in range(2):
        for _ in range(6):
            x = torch.randn(16, 7, generator=data)
            optimizer.zero_grad()
            F.mse_loss(model(x).squeeze(-1), x.norm(dim=1)).backward()
            optimizer.step()
            averaging.zero_grad()
            F.mse_loss(probe(x).squeeze(-1), x.sum(dim=1)).backward()
            averaging.step()
        average_statistics(net)
    time.sleep(0.5)  # saves; and Gloo's threads let go of the last tensors, for which torch 1.13 may wait forever
    dist.destroy_process_group()
    sys.exit(REQUEUE)


if __name__ == "__main__":
    main()
