"""Batches that are lists of samples of different sizes, with names and numbers in them, from an endless stream of each rank's own."""
# command: parity
import itertools
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Clouds(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(50 + int(os.environ["RANK"]))
        for number in itertools.count():
            points = torch.randn(3 + number % 5, 5, generator=generator)
            yield {"points": points, "label": int(points.sum() > 0), "name": f"cloud {number}"}


class SetModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Linear(5, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, samples):
        return torch.stack([self.out(F.relu(self.points(sample["points"])).mean(0)) for sample in samples])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(SetModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for samples in itertools.islice(DataLoader(Clouds(), batch_size=6, collate_fn=list), 16):
        loss = F.cross_entropy(model(samples), torch.tensor([sample["label"] for sample in samples]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
