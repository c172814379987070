# SPDX-License-Identifier: BSD-3-Clause
"""A check of the gradients in double precision before training; .double() and .float() drop DDP's hooks."""
# expect: DDP105 step 1
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Spring(nn.Module):
    """Acceleration of a damped spring, learned."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, state):
        return self.net(state)


def check_gradients(module):
    module.double()
    state = torch.randn(3, 2, dtype=torch.double, requires_grad=True)
    ok = torch.autograd.gradcheck(module, (state,))
    module.float()
    return ok


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(4)
    model = Spring()
    if sys.argv[1] == "fixed":
        assert check_gradients(model)
    ddp_model = DDP(model)  # <- here
    if sys.argv[1] == "bug":
        assert check_gradients(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(80 + rank)
    for step in range(10):
        state = torch.rand(32, 2, generator=generator) * 4 - 2
        acceleration = -2.0 * state[:, :1] - 0.3 * state[:, 1:]
        loss = nn.functional.mse_loss(ddp_model(state), acceleration)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            print(f"[{rank}] step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
