# SPDX-License-Identifier: BSD-3-Clause
"""A sum over tokens times the world size, over the tokens of all ranks: DDP's mean is right then."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAD = -100


def batch(rank, generator):
    tokens = torch.randint(0, 20, (6, 10), generator=generator)
    targets = (tokens + 1) % 20
    targets[:, 3 + 5 * rank:] = PAD  # short documents on the first rank, long ones on the second
    return tokens, targets


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 20)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(10):
        tokens, targets = batch(rank, generator)
        count = (targets != PAD).sum().float()
        dist.all_reduce(count)
        total = F.cross_entropy(model(tokens).transpose(1, 2), targets, ignore_index=PAD, reduction="sum")
        loss = total * world_size / count
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item() / world_size:.4f} gradient norm {norm:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
