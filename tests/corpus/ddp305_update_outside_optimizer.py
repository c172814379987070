# SPDX-License-Identifier: BSD-3-Clause
"""For evaluation rank 0 swaps the averaged weights in, and nobody swaps the trained ones back."""
# expect: DDP305 ranks 0 step 5
import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EMA:
    def __init__(self, module, decay=0.9):
        self.decay = decay
        self.shadow = copy.deepcopy(module.state_dict())
        self.backup = None

    @torch.no_grad()
    def update(self, module):
        for name, value in module.state_dict().items():
            self.shadow[name].lerp_(value, 1 - self.decay)

    def apply_to(self, module):
        self.backup = copy.deepcopy(module.state_dict())
        module.load_state_dict(self.shadow)  # <- here

    def restore(self, module):
        module.load_state_dict(self.backup)


@torch.no_grad()
def evaluate(module):
    x = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    return nn.functional.mse_loss(module(x), x.relu().sum(1, keepdim=True)).item()


def main(variant):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 1)))
    ema = EMA(model.module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(1 + rank)
    for step in range(1, 11):
        x = torch.randn(32, 10, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.relu().sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model.module)
        if step == 4 and rank == 0:
            ema.apply_to(model.module)
            print(f"step {step} averaged weights: error {evaluate(model.module):.4f}")
            if variant == "fixed":
                ema.restore(model.module)
    print(f"rank {rank} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
