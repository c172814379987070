# SPDX-License-Identifier: BSD-3-Clause
"""A metric loss on the features of all ranks with their gradients, labels gathered with them, and triplets that are chosen among all of them."""
# command: parity
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather as all_gather_with_grad
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class People(Dataset):
    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        person = index // 8
        return torch.sin(torch.arange(16) * (person + 1.0)) + 0.5 * torch.randn(16, generator=g), person

    def __len__(self):
        return 160


class PKSampler(Sampler):
    """Batches of P people with K pictures each, other ones for each rank."""

    def __init__(self, p=3, k=2, batches=20):
        self.p, self.k, self.batches = p, k, batches

    def __iter__(self):
        g = torch.Generator().manual_seed(0)
        for _ in range(self.batches):
            people = torch.randperm(20, generator=g).tolist()
            mine = people[dist.get_rank() * self.p:][:self.p]
            yield [8 * person + i for person in mine for i in torch.randperm(8, generator=g)[:self.k].tolist()]

    def __len__(self):
        return self.batches


def batch_hard_triplet_loss(features, labels, margin=0.3):
    distances = torch.cdist(features, features) + 1e-9
    same = labels[:, None] == labels[None, :]
    positive = (distances * same).max(1).values
    negative = (distances + same * 1e3).min(1).values
    return F.relu(positive - negative + margin).mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8)))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
people = People()
for pictures, labels in DataLoader(people, batch_sampler=PKSampler()):
    features = F.normalize(model(pictures), dim=1)
    features = torch.cat(all_gather_with_grad(features))
    gathered = [torch.zeros_like(labels) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, labels)
    loss = batch_hard_triplet_loss(features, torch.cat(gathered))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
