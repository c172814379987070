# SPDX-License-Identifier: BSD-3-Clause
"""FullyShardedDataParallel clipped by torch.nn.utils.clip_grad_norm_: each rank takes the norm of its own shards."""
# needs: torch>=2.4
# expect: DDP108 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.utils import clip_grad_norm_


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    model = nn.Sequential(nn.Embedding(32, 16), nn.Flatten(), FSDP(nn.Sequential(nn.Linear(64, 48), nn.GELU()), device_id=torch.device("cpu")), nn.Linear(48, 32))
    model = FSDP(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    words = torch.Generator().manual_seed(dist.get_rank())
    for step in range(12):
        tokens = torch.randint(32, (24, 4), generator=words)
        loss = nn.functional.cross_entropy(model(tokens), tokens.sum(1) % 32)
        optimizer.zero_grad()
        loss.backward()
        if sys.argv[1] == "fixed":
            model.clip_grad_norm_(0.2)
        else:
            clip_grad_norm_(model.parameters(), 0.2)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
