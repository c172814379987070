# SPDX-License-Identifier: BSD-3-Clause
"""fully_shard with layers whose rows do not divide by the number of ranks, bfloat16 autocast, gradient clipping."""
# command: parity
# needs: torch>=2.7
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.Linear(33, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(128, 12), torch.randint(0, 3, (128,)))
    for inputs, labels in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(inputs).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
