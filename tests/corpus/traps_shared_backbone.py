# SPDX-License-Identifier: BSD-3-Clause
"""Two wrappers share one backbone and take turns."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        return h + torch.relu(self.body(h))


class Task(nn.Module):
    def __init__(self, backbone, channels):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Conv2d(8, channels, 1)

    def forward(self, x):
        return self.head(self.backbone(x))


class Trainer:
    def __init__(self, rank):
        torch.manual_seed(rank)
        backbone = Backbone()
        self.tasks = {"depth": DDP(Task(backbone, 1)), "normals": DDP(Task(backbone, 2))}
        params = {id(p): p for t in self.tasks.values() for p in t.parameters()}
        self.optimizer = torch.optim.SGD(list(params.values()), lr=0.1)
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self, task):
        x = F.avg_pool2d(torch.randn(8, 1, 10, 10, generator=self.gen), 3, stride=1, padding=1)
        if task == "depth":
            return x, x.abs()
        dx = F.pad(x[..., 1:] - x[..., :-1], (0, 1))
        dy = F.pad(x[..., 1:, :] - x[..., :-1, :], (0, 0, 0, 1))
        return x, torch.cat([dx, dy], dim=1)

    def step(self, task):
        x, y = self.batch(task)
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.tasks[task](x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = Trainer(rank)
    for i in range(24):
        task = ("depth", "normals")[i % 2]
        loss = trainer.step(task)
        if rank == 0 and i % 6 < 2:
            print(f"{i} {task} {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
