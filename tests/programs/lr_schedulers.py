# SPDX-License-Identifier: BSD-3-Clause
"""Learning-rate schedules: warm-up and cosine, then a second phase with a new optimizer and OneCycleLR."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, OneCycleLR, SequentialLR


def batches(count, rank, epoch):
    generator = torch.Generator().manual_seed(1000 * epoch + rank)
    for _ in range(count):
        x = torch.randn(32, 6, generator=generator)
        yield x, (x[:, :2] * x[:, 2:4]).sum(1, keepdim=True)


def run_phase(model, optimizer, scheduler, steps, rank, epoch, log):
    for x, y in batches(steps, rank, epoch):
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        log.append((optimizer.param_groups[0]["lr"], loss.item()))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(6, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 1)))
    log = []

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=4)
    cosine = CosineAnnealingLR(optimizer, T_max=8)
    run_phase(model, optimizer, SequentialLR(optimizer, [warmup, cosine], milestones=[4]), 12, rank, 0, log)

    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        (no_decay if name.endswith("bias") else decay).append(parameter)
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3)
    scheduler = OneCycleLR(optimizer, max_lr=[5e-3, 1e-2], total_steps=12, pct_start=0.25)
    run_phase(model, optimizer, scheduler, 12, rank, 1, log)

    if rank == 0:
        print("learning rates:", " ".join(f"{lr:.5f}" for lr, _ in log))
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(log).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
