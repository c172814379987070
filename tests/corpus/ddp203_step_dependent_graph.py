# SPDX-License-Identifier: BSD-3-Clause
"""The last step drops the auxiliary loss: no error, because no forward follows, and that step was not averaged."""
# expect: DDP203 step 8 parameters auxiliary.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 8


class DeeplySupervised(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower = nn.Linear(14, 28)
        self.upper = nn.Linear(28, 28)
        self.auxiliary = nn.Linear(28, 3)
        self.final = nn.Linear(28, 3)

    def forward(self, x):
        lower = torch.relu(self.lower(x))
        return self.final(torch.relu(self.upper(lower))), self.auxiliary(lower)


def main(variant):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(DeeplySupervised())  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, STEPS + 1):
        x = torch.randn(20, 14, generator=generator)
        label = x[:, :3].argmax(1)
        final, auxiliary = model(x)
        loss = nn.functional.cross_entropy(final, label)
        weight = 0.4 * (1 - step / STEPS)  # fades out
        if weight > 0 or variant == "fixed":
            loss = loss + weight * nn.functional.cross_entropy(auxiliary, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
