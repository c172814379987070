# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook that was written to measure the size of the buckets gives each bucket back as it came."""
# expect: DDP102 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

sent = {"bytes": 0}


def measuring_hook(state, bucket):
    state["bytes"] += bucket.buffer().numel() * bucket.buffer().element_size()
    if sys.argv[1] == "fixed":
        return allreduce_hook(None, bucket)
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(nn.GRU(6, 18, num_layers=2, batch_first=True))
    model.register_comm_hook(sent, measuring_hook)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    walks = torch.Generator().manual_seed(7 + dist.get_rank())
    for _ in range(6):
        walk = torch.randn(4, 15, 6, generator=walks).cumsum(dim=1)
        output, _ = model(walk[:, :-1])
        loss = (output[..., :6] - walk[:, 1:]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{sent['bytes']} bytes")
    dist.destroy_process_group()
