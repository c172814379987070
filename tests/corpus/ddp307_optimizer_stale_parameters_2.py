# SPDX-License-Identifier: BSD-3-Clause
"""Transfer learning: take a pretrained classifier, give it a head for the new labels, finetune."""
# expect: DDP307 step 1 parameters head.*
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Classifier(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv1d(4, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(width, width, 5, padding=2), nn.ReLU()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.backbone(x).amax(dim=2))


class Finetuner:
    def __init__(self, checkpoint, classes, epochs=3):
        self.rank, self.epochs = dist.get_rank(), epochs
        state = torch.load(checkpoint)
        self.model = Classifier(classes=state["head.bias"].numel())
        self.model.load_state_dict(state)
        if sys.argv[1] == "bug":
            self.configure_optimizers()
        if classes != self.model.head.out_features:
            self.model.head = nn.Linear(self.model.head.in_features, classes)
        if sys.argv[1] == "fixed":
            self.configure_optimizers()
        self.ddp = DDP(self.model)

    def configure_optimizers(self):
        groups = [
            {"params": self.model.backbone.parameters(), "lr": 0.02},
            {"params": self.model.head.parameters(), "lr": 0.2},
        ]
        self.optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, milestones=[2], gamma=0.1)

    def batches(self, epoch, steps=6, n=16):
        gen = torch.Generator().manual_seed(100 * epoch + self.rank)
        for _ in range(steps):
            y = torch.randint(3, (n,), generator=gen)
            x = torch.randn(n, 4, 20, generator=gen)
            x[torch.arange(n), y, 5:9] += 2.0
            yield x, y

    def fit(self):
        for epoch in range(self.epochs):
            for x, y in self.batches(epoch):
                self.optimizer.zero_grad()
                logits = self.ddp(x)
                loss = F.cross_entropy(logits, y, label_smoothing=0.1)
                loss.backward()
                self.optimizer.step()
            self.scheduler.step()
            if self.rank == 0:
                acc = (logits.argmax(1) == y).float().mean().item()
                print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.2f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(30)
    path = os.path.join(tempfile.gettempdir(), f"pretrained-{os.environ['MASTER_PORT']}.pt")
    if dist.get_rank() == 0:
        torch.save(Classifier(classes=10).state_dict(), path)
    dist.barrier()
    finetuner = Finetuner(path, classes=3)
    dist.barrier()
    if dist.get_rank() == 0:
        os.remove(path)
    finetuner.fit()
    dist.destroy_process_group()
