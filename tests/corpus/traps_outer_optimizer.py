# SPDX-License-Identifier: BSD-3-Clause
"""DiLoCo: each rank takes inner steps of its own, then an outer optimizer with Nesterov momentum steps on the mean of what they moved, which is
assigned as the gradient of weights that no forward uses."""
# never: DDP208
import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
    anchor = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = torch.optim.SGD(anchor, lr=0.7, momentum=0.9, nesterov=True)
    data = torch.Generator().manual_seed(50 + dist.get_rank())
    for step in range(1, 21):
        x = torch.randn(16, 8, generator=data)
        inner.zero_grad()
        nn.functional.mse_loss(model(x), x.roll(1, dims=1)).backward()
        inner.step()
        if step % 5 == 0:
            for start, parameter in zip(anchor, model.parameters()):
                start.grad = (start - parameter).detach()
                dist.all_reduce(start.grad)
                start.grad /= dist.get_world_size()
            outer.step()
            with torch.no_grad():
                for start, parameter in zip(anchor, model.parameters()):
                    parameter.copy_(start)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
