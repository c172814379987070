# SPDX-License-Identifier: BSD-3-Clause
"""SyncBatchNorm where the device has it; on a CPU, which has not, ordinary batch normalization with a message."""
import copy
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_model():
    return nn.Sequential(
        nn.Conv1d(3, 12, 3, padding=1), nn.BatchNorm1d(12), nn.ReLU(),
        nn.Conv1d(12, 12, 3, padding=1, bias=False), nn.BatchNorm1d(12), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 2))


def wrap(model, rank):
    """The model with SyncBatchNorm if one batch gets through it, otherwise as it is."""
    try:
        synced = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model)))
        synced(torch.zeros(4, 3, 16)).sum().backward()
        return synced
    except (ValueError, RuntimeError) as error:
        if rank == 0:
            print(f"no SyncBatchNorm here ({str(error).splitlines()[0]}): each rank normalizes by itself")
        return DDP(model)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    model = wrap(make_model(), rank)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(400 + rank)
    losses = []
    model.train()
    for step in range(16):
        labels = torch.randint(0, 2, (12,), generator=generator)
        signal = torch.randn(12, 3, 16, generator=generator) + labels[:, None, None]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(signal), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        held_out = model(torch.randn(6, 3, 16, generator=generator))
    digest = hashlib.sha256()
    for tensor in [*model.module.state_dict().values(), held_out, torch.tensor(losses)]:
        digest.update(tensor.numpy().tobytes())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
