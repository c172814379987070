# SPDX-License-Identifier: BSD-3-Clause
"""A wrapped model whose loss is computed on the module inside, as a curriculum trainer did it, and the cure that was proposed: one
all-reduce per gradient after backward.

usage: torchrun --nproc_per_node 2 bypassed_wrapper.py [bypassed | averaged | both] [STEPS]

Rank 0 prints, from collectives of its own, the gradient norm of every rank and how far the replicas are apart: the figures that a
report about this program must show too.
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def of_every_rank(tensor):
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor)
    return gathered


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def drift(replicas):
    return max((a - b).abs().max().item() for a in replicas for b in replicas)


def train(average, steps):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(4, 4))
    model = ddp.module
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if rank == 0:
        print(f"{'averaged' if average else 'bypassed'}: step | gradient norm per rank | synced | weight drift", flush=True)
    for step in range(steps):
        shard = torch.randn(4, 4, generator=torch.Generator().manual_seed(1000 + step)) * 0.5 + rank
        target = torch.randn(4, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(shard) - target).pow(2).mean().backward()
        if average:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world_size  # gloo has no ReduceOp.AVG
        gradients = of_every_rank(flat(parameter.grad for parameter in model.parameters()))
        optimizer.step()
        weights = of_every_rank(flat(model.parameters()))
        if rank == 0:
            norms = ", ".join(f"{gradient.double().norm().item():.5f}" for gradient in gradients)
            synced = "yes" if all(torch.equal(gradients[0], gradient) for gradient in gradients) else "no"
            print(f"{step + 1:4} | [{norms}] | {synced} | {drift(weights):.3e}", flush=True)


def main(which, steps):
    dist.init_process_group("gloo")
    for average in {"bypassed": [False], "averaged": [True], "both": [False, True]}[which]:
        train(average, steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "bypassed", int(sys.argv[2]) if len(sys.argv) > 2 else 5)
