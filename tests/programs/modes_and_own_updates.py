# SPDX-License-Identifier: BSD-3-Clause
"""No optimizer of torch's, and torch function modes of its own, which are entered and left between a backward and the next forward. What a weight's
gradient is asked of may be an edge of the graph."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.overrides import TorchFunctionMode


class Counter(TorchFunctionMode):
    def __init__(self):
        self.calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2)))
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    around, beside, after = Counter(), Counter(), Counter()
    for step in range(12):
        x = torch.randn(8, 6, generator=generator)
        if step % 3 == 0:  # the mode is there in the backward and left after it
            with around:
                nn.functional.mse_loss(model(x), x[:, :2]).backward()
        else:
            nn.functional.mse_loss(model(x), x[:, :2]).backward()
        if hasattr(torch.autograd.graph, "get_gradient_edge"):  # torch 2.2 and later
            weight = next(model.parameters())
            torch.autograd.grad((weight * weight).sum(), [torch.autograd.graph.get_gradient_edge(weight)])
        with beside, torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        if step % 3 == 1:  # left in a forward
            after.__enter__()
            model(x)
            after.__exit__(None, None, None)
        model.zero_grad()
    before = [counter.calls for counter in (around, beside, after)]
    torch.ones(2) + 1
    assert before == [counter.calls for counter in (around, beside, after)], "a mode is still there"
    assert all(before), before
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(f"digest rank {dist.get_rank()} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
