"""Negatives are taken from the rank's own batch only, so the loss depends on the number of ranks; fixed: from those of all ranks."""
# command: parity
# expect: DDP704 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def contrastive(views, mode):
    left, right = (F.normalize(view, dim=1) for view in views.chunk(2))
    if mode == "fixed":
        left, right = (torch.cat(differentiable.all_gather(view)) for view in (left, right))
    return F.cross_entropy(left @ right.t() / 0.2, torch.arange(len(left)))


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    images = torch.randn(96, 12)
    data = TensorDataset(images + 0.1 * torch.randn(96, 12), images + 0.1 * torch.randn(96, 12))
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for one, other in DataLoader(data, batch_size=6, sampler=DistributedSampler(data)):
        loss = contrastive(model(torch.cat([one, other])), mode)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
