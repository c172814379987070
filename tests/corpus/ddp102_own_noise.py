# SPDX-License-Identifier: BSD-3-Clause
"""Differentially private training: the sums of clipped gradients are reduced, and every rank then adds noise of its own."""
# expect: DDP102 ranks 0 1 step 1
# needs: torch>=2.0
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call, grad, vmap


def clipped(gradients, limit):
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factors = (limit / (norms + 1e-6)).clamp(max=1.0)
    return {name: torch.tensordot(factors, g, dims=1) for name, g in gradients.items()}


class Private:
    def __init__(self, model, noise, limit=1.0):
        self.model, self.noise, self.limit = model, noise, limit

    def loss(self, parameters, x, y):
        return nn.functional.mse_loss(functional_call(self.model, parameters, (x[None],)), y[None])

    def backward(self, x, y):
        parameters = {name: p.detach() for name, p in self.model.named_parameters()}
        sums = clipped(vmap(grad(self.loss), in_dims=(None, 0, 0))(parameters, x, y), self.limit)
        for name, p in self.model.named_parameters():
            dist.all_reduce(sums[name])  # <- here
            blurred = sums[name] + 0.5 * self.limit * torch.randn(p.shape, generator=self.noise)
            p.grad = blurred / (len(x) * dist.get_world_size())


def main(own):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 18), nn.Softplus(), nn.Linear(18, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    private = Private(model, torch.Generator().manual_seed(999 + rank if own else 999))
    samples = torch.Generator().manual_seed(rank)
    for _ in range(12):
        x = torch.randn(16, 6, generator=samples)
        private.backward(x, x[:, :2] * x[:, 2:4])
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(own=sys.argv[1] == "bug")
