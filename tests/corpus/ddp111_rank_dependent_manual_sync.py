# SPDX-License-Identifier: BSD-3-Clause
"""One flat all-reduce over the gradients that exist: a batch without masks makes it shorter on that rank."""
# expect: DDP111 ranks 1 step 5
from datetime import timedelta
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
        self.label = nn.Linear(6, 2)
        self.mask = nn.Conv2d(6, 1, 1)

    def losses(self, images, labels, masks):
        features = self.backbone(images)
        yield nn.functional.cross_entropy(self.label(features.mean((2, 3))), labels)
        has_mask = masks.flatten(1).any(1)
        if has_mask.any():
            predicted = self.mask(features[has_mask])
            yield nn.functional.binary_cross_entropy_with_logits(predicted, masks[has_mask])


def average_gradients(model, skip_missing):
    gradients = []
    for parameter in model.parameters():
        if parameter.grad is None:
            if skip_missing:
                continue
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    flat = _flatten_dense_tensors(gradients)
    dist.all_reduce(flat)  # <- here
    flat /= dist.get_world_size()
    for gradient, averaged in zip(gradients, _unflatten_dense_tensors(flat, gradients)):
        gradient.copy_(averaged)


def scans(rank):
    generator = torch.Generator().manual_seed(rank)
    for i in range(10):
        images = torch.rand(8, 1, 12, 12, generator=generator)
        healthy = rank == 1 and i == 4
        masks = torch.zeros_like(images) if healthy else (images > 0.7).float()
        yield images, (images.mean((1, 2, 3)) > 0.5).long(), masks


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    model = Segmenter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels, masks in scans(dist.get_rank()):
        optimizer.zero_grad(set_to_none=True)
        loss = sum(model.losses(images, labels, masks))
        loss.backward()
        average_gradients(model, skip_missing=sys.argv[1] == "bug")
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
