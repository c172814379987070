# SPDX-License-Identifier: BSD-3-Clause
"""The temperature of a contrastive loss is kept out of DDP, for a custom update that was never written."""
# expect: DDP106 step 1 parameters calibration.*
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Calibration(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor([1.5, 1.5]))
        self.offset = nn.Parameter(torch.zeros(2))

    def forward(self, scores):
        return scores * self.temperature.sum().exp() + self.offset.sum()


class Matcher(nn.Module):
    def __init__(self, width=14):
        super().__init__()
        self.left, self.right = nn.Linear(9, width), nn.Linear(9, width)
        self.calibration = Calibration()

    def forward(self, a, b):
        scores = F.normalize(self.left(a), dim=1) @ F.normalize(self.right(b), dim=1).T
        return self.calibration(scores)


def main(variant, steps=8):
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    net = Matcher()
    if variant == "bug":
        DDP._set_params_and_buffers_to_ignore_for_model(net, ["calibration.temperature", "calibration.offset"])
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        a = torch.randn(20, 9, generator=data)
        scores = model(a, a + 0.3 * torch.randn(20, 9, generator=data))
        loss = F.binary_cross_entropy_with_logits(scores, torch.eye(20))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
