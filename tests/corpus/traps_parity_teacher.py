"""Self-distillation: a teacher that is a moving average, a centre that all ranks share, and crops of several sizes as a list."""
# command: parity
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Crops(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(10, generator=generator)
        return [image + 0.1 * torch.randn(10, generator=generator) for _ in range(3)], index


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 6))

    def forward(self, student, teacher):
        target = F.softmax((teacher - self.center) / 0.1, dim=-1).detach()
        loss = -(target * F.log_softmax(student / 0.2, dim=-1)).sum(-1).mean()
        mean = torch.cat([teacher.sum(0), torch.tensor([float(len(teacher))])])
        dist.all_reduce(mean)
        self.center = 0.9 * self.center + 0.1 * (mean[:-1] / mean[-1])
        return loss


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Dropout(0.1), nn.Linear(20, 6))
    teacher = copy.deepcopy(network).requires_grad_(False)
    student, distillation = DDP(network), Distillation()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    data = Crops()
    for crops, _ in DataLoader(data, batch_size=3, sampler=DistributedSampler(data)):
        with torch.no_grad():
            target = teacher(crops[0])
        loss = sum(distillation(student(crop), target) for crop in crops[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, new in zip(teacher.parameters(), network.parameters()):
                mine.mul_(0.9).add_(new, alpha=0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
