# SPDX-License-Identifier: BSD-3-Clause
"""fully_shard, accumulation: synchronization is switched on by the wrong micro-batch, so the last one stays unreduced."""
# expect: DDP103 ranks 0 1 step 1
# needs: torch>=2.7
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

MICRO_BATCHES = 3
SYNC_AT = MICRO_BATCHES - 1 if sys.argv[1] == "fixed" else 0


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.cells = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, 40)

    def forward(self, tokens):
        return self.out(self.cells(self.embed(tokens))[0])


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(8)
reader = Reader()
fully_shard(reader.out, mesh=mesh)
fully_shard(reader, mesh=mesh)
optimizer = torch.optim.AdamW(reader.parameters(), lr=2e-3)
texts = torch.Generator().manual_seed(90 + dist.get_rank())
for step in range(6):
    for micro in range(MICRO_BATCHES):
        reader.set_requires_gradient_sync(micro == SYNC_AT)
        start = torch.randint(0, 40, (4, 1), generator=texts)
        tokens = (start + 7 * torch.arange(9)) % 40
        logits = reader(tokens[:, :-1])
        (F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / MICRO_BATCHES).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
