# SPDX-License-Identifier: BSD-3-Clause
"""A frozen, pretrained backbone with BatchNorm in eval mode, and a new head on it; learning rates by layer, an evaluation after each epoch."""
# command: parity
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Backbone(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class FineTuned(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = Backbone()
        self.adapter = nn.Linear(16, 16)
        self.head = nn.Linear(16, classes)
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        features = self.backbone(x)
        return self.head(features + torch.relu(self.adapter(features)))


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(1) == y).sum() for x, y in loader)
    model.train()
    dist.all_reduce(hits)
    return hits


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = FineTuned(4)
    with torch.no_grad():  # as if it was trained
        for norm in (model.backbone[1], model.backbone[5]):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    ddp = DDP(model.train())
    optimizer = torch.optim.SGD([{"params": model.adapter.parameters(), "lr": 0.01}, {"params": model.head.parameters()}], lr=0.1, momentum=0.9)
    images = TensorDataset(torch.randn(84, 3, 8, 8), torch.randint(0, 4, (84,)))
    held_out = DataLoader(TensorDataset(*images[:16]), batch_size=8)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        sampler = DistributedSampler(images)
        sampler.set_epoch(epoch)
        for x, y in DataLoader(images, batch_size=8, sampler=sampler, num_workers=1):
            loss = criterion(ddp(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy(ddp.module, held_out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
