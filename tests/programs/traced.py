# SPDX-License-Identifier: BSD-3-Clause
"""Under a tracer and a profiler of its own, as coverage, a debugger or cProfile install them: every line and call of this file is counted."""
import collections
import hashlib
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

lines, calls = collections.Counter(), collections.Counter()


def tracer(frame, event, _):
    if frame.f_code.co_filename != __file__:
        return None
    if event == "line":
        lines[frame.f_lineno] += 1
    return tracer


def profiler(frame, event, _):
    if event == "call" and frame.f_code.co_filename == __file__:
        calls[frame.f_code.co_name] += 1


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


def train(model, optimizer, data):
    losses = []
    for _ in range(12):
        x = torch.randn(16, 10, generator=data)
        loss = (model(x).squeeze(1) - x.cos().sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(23)
    model = DDP(nn.Sequential(Residual(10), Residual(10), nn.Linear(10, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    threading.settrace(tracer)
    sys.settrace(tracer)
    sys.setprofile(profiler)
    losses = train(model, optimizer, torch.Generator().manual_seed(rank))
    sys.setprofile(None)
    sys.settrace(None)
    with torch.no_grad():
        losses.append(model.module(torch.ones(4, 10)).sum().item())

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, sorted(lines.items()), sorted(calls.items()))).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
