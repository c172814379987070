# SPDX-License-Identifier: BSD-3-Clause
"""Gradients by torch.autograd.grad, weighted and assigned to .grad: the reducer's hooks never fire."""
# expect: DDP110 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SourceWeighting:
    """Domain generalization: a gradient per source, weighted by how well it agrees with their mean."""

    def __init__(self, parameters, average):
        self.parameters, self.average = list(parameters), average

    def apply(self, losses):
        gradients = [torch.autograd.grad(loss, self.parameters, retain_graph=True) for loss in losses]  # <- here
        for parameter, *parts in zip(self.parameters, *gradients):
            mean = sum(parts) / len(parts)
            weights = [F.cosine_similarity(part.flatten(), mean.flatten(), dim=0).clamp(min=0) for part in parts]
            parameter.grad = sum(w * part for w, part in zip(weights, parts)) / len(parts)
            if self.average:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(12, 28), nn.ReLU())
        self.out = nn.Linear(28, 3)

    def forward(self, x):
        return self.out(self.features(x))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weighting = SourceWeighting(model.parameters(), average=sys.argv[1] == "fixed")
    generator = torch.Generator().manual_seed(5 + dist.get_rank())
    for step in range(8):
        x = torch.randn(36, 12, generator=generator)
        x[18:] += 0.5  # the second source
        per_sample = F.cross_entropy(model(x), x[:, :3].argmax(1), reduction="none")
        weighting.apply([per_sample[:18].mean(), per_sample[18:].mean()])
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {per_sample.mean().item():.4f}")
    dist.destroy_process_group()


main()
