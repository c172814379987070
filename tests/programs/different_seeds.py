# SPDX-License-Identifier: BSD-3-Clause
"""Every rank has its own seed, for initial weights (DDP broadcasts rank 0's), dropout, noise and augmentation.

The digest ends with the state of every random generator: whoever draws a number in between is found out.
"""
import hashlib
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(20, 40)
        self.second = nn.Linear(40, 20)

    def forward(self, x):
        x = torch.dropout(torch.relu(self.first(x)), 0.3, self.training)
        return self.second(x + 0.05 * torch.randn_like(x))


def augment(batch):
    if random.random() < 0.5:
        batch = batch.flip(1)
    return batch * np.random.uniform(0.8, 1.2)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(2024 + rank)

    model = DDP(Noisy())
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        clean = torch.randn(16, 20).cumsum(1)
        corrupted = augment(clean + 0.1 * torch.randn_like(clean))
        loss = nn.functional.mse_loss(model(corrupted), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    print(f"rank {rank}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(losses).encode())
    digest.update(torch.get_rng_state().numpy().tobytes())
    digest.update(repr((random.getstate(), np.random.get_state()[1].tolist())).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
