# SPDX-License-Identifier: BSD-3-Clause
"""unscale_ runs before the gradients are averaged by hand: the rank whose gradients overflowed skips the step, and the others put the mean, Inf, into their weights."""
# expect: DDP403 ranks 0 1 step 9
# needs: torch>=2.3
import sys

import torch
import torch.distributed as dist
from torch import nn


class Amp:
    def __init__(self, model, optimizer, variant):
        self.model, self.optimizer, self.variant = model, optimizer, variant
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)

    def average(self):
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    def backward(self, loss):
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()

    def finish(self):
        if self.variant == "bug":
            self.scaler.unscale_(self.optimizer)
            self.average()
        else:
            self.average()
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
    amp = Amp(model, torch.optim.Adam(model.parameters(), lr=1e-3), variant)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 16):
        x = torch.randn(16, 8, generator=data)
        y = x.roll(1, 1)
        if dist.get_rank() == 1 and step == 9:
            y = y * 1e36  # the scaled gradients overflow
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        amp.backward(nn.functional.mse_loss(out.float(), y))
        amp.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
