# SPDX-License-Identifier: BSD-3-Clause
"""FullyShardedDataParallel with NO_SHARD: replicas, whose flat parameters are all-reduced."""
# needs: torch>=2.4
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = FSDP(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 10)), device_id=torch.device("cpu"),
                 sharding_strategy=ShardingStrategy.NO_SHARD, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(9 + dist.get_rank())
    for _ in range(6):
        x = torch.randn(12, 10, generator=data)
        optimizer.zero_grad()
        (model(x) - x.sort(dim=1).values).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
