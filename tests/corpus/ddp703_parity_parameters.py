"""A two-tower model gathers the features of all ranks without their gradients; the temperature gets its whole gradient (open_clip#616)."""
# command: parity
# expect: DDP703 ranks 0 1 step 1 parameters query.* item.*
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 8))
        self.item = nn.Sequential(nn.Linear(14, 24), nn.ReLU(), nn.Linear(24, 8))
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, query, item):
        return F.normalize(self.query(query), dim=1), F.normalize(self.item(item), dim=1)


def everyone(features, mode):
    if mode == "fixed":
        return torch.cat(differentiable.all_gather(features))
    parts = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, features)
    parts[dist.get_rank()] = features
    return torch.cat(parts)


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    topic = torch.randn(120, 5)
    data = TensorDataset(topic @ torch.randn(5, 10), topic @ torch.randn(5, 14))
    towers = TwoTowers()
    model = DDP(towers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for queries, items in DataLoader(data, batch_size=6, sampler=DistributedSampler(data)):
        query, item = model(queries, items)
        scores = towers.temperature.exp() * everyone(query, mode) @ everyone(item, mode).t()
        loss = F.cross_entropy(scores, torch.arange(len(scores)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
