# SPDX-License-Identifier: BSD-3-Clause
"""Two wrapped models with an optimizer each and one backward for both: a helper calls the modules inside the wrappers."""
# expect: DDP101 ranks 0 1 step 1 parameters Encoder:*
# expect: DDP101 ranks 0 1 step 2 parameters Decoder:*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Linear):
    pass


class Decoder(nn.Linear):
    pass


def reconstruct(models, x, inside):
    for model in models:
        x = (model.module if inside else model)(x).tanh()
    return x


dist.init_process_group("gloo")
torch.manual_seed(5)
models = [DDP(Encoder(9, 4)), DDP(Decoder(4, 9))]
optimizers = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in models]
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(5):
    x = torch.rand(14, 9, generator=generator)
    (reconstruct(models, x, inside=sys.argv[1] == "bug") - x).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
