# SPDX-License-Identifier: BSD-3-Clause
"""Communication hooks: gradients compressed to float16, and an all-reduce of one's own that counts what it sends."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


class Traffic:
    def __init__(self):
        self.bytes = 0


def counting_all_reduce(traffic, bucket):
    buffer = bucket.buffer()
    traffic.bytes += buffer.numel() * buffer.element_size()
    buffer.div_(dist.get_world_size())
    future = dist.all_reduce(buffer, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def make_model():
    torch.manual_seed(37)
    # Small buckets, so that there are several.
    return DDP(nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), bucket_cap_mb=0.01)


def train(model, rank, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(800 + rank)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 12, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    compressed = make_model()
    compressed.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    losses = train(compressed, rank, 12)

    traffic = Traffic()
    counted = make_model()
    counted.register_comm_hook(traffic, counting_all_reduce)
    losses += train(counted, rank, 12)
    if rank == 0:
        print(f"loss {losses[11]:.4f} compressed, {losses[-1]:.4f} in full, {traffic.bytes} bytes sent in full")

    x = torch.randn(5000, 12, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        right = [(model.module(x).argmax(1) == x[:, :4].argmax(1)).sum().item() for model in (compressed, counted)]

    digest = hashlib.sha256()
    for parameter in [*compressed.parameters(), *counted.parameters()]:
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, right, traffic.bytes)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
