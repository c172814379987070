# SPDX-License-Identifier: BSD-3-Clause
"""FullyShardedDataParallel with its layers wrapped one by one, their sizes not multiples of the world size, and gradient accumulation."""
# command: parity
# needs: torch>=2.6
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width + 1), nn.GELU(), nn.Linear(2 * width + 1, width), nn.Dropout(0.2))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 15), Block(15), Block(15), nn.Linear(15, 3))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(160, 10), torch.randint(0, 3, (160,)))
    loss_fn = nn.CrossEntropyLoss()
    accumulation = 2
    for i, (x, y) in enumerate(DataLoader(data, batch_size=5, sampler=DistributedSampler(data))):
        loss = loss_fn(model(x), y) / accumulation
        loss.backward()
        if i % accumulation == accumulation - 1:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
