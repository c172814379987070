# SPDX-License-Identifier: BSD-3-Clause
"""No wrapper: parameters broadcast once, gradients flattened, summed by one all-reduce, and averaged."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(14, 28), nn.Softplus(), nn.Linear(28, 10))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, left, right):
        return self.scale * (self.encoder(left) - self.encoder(right)).pow(2).sum(1)


def broadcast_parameters(model):
    for tensor in list(model.parameters()) + list(model.buffers()):
        dist.broadcast(tensor.data, src=0)


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = _flatten_dense_tensors(gradients)
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= dist.get_world_size()
    for gradient, average in zip(gradients, _unflatten_dense_tensors(flat, gradients)):
        gradient.copy_(average)


def pairs(generator, count):
    left = torch.randn(count, 14, generator=generator)
    same = torch.rand(count, generator=generator) < 0.5
    right = torch.where(same[:, None], left + 0.1 * torch.randn(count, 14, generator=generator), left.flip(0))
    return left, right, same.float()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # each rank begins elsewhere; the broadcast makes them the same
    model = Siamese()
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.8)
    generator = torch.Generator().manual_seed(600 + rank)
    losses = []
    for _ in range(20):
        left, right, same = pairs(generator, 24)
        optimizer.zero_grad()
        distance = model(left, right)
        loss = (same * distance + (1 - same) * torch.relu(2 - distance)).mean()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        losses.append(loss.item())

    if rank == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    left, right, same = pairs(torch.Generator().manual_seed(599), 4000)
    with torch.no_grad():
        accuracy = ((model(left, right) < 1) == same.bool()).float().mean().item()
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr((losses, accuracy)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
