# SPDX-License-Identifier: BSD-3-Clause
"""The program of test_recorders.py in Python: what recorded_trainer.cpp does in C++.

usage: recorded_trainer.py PROGRAM.pt STRATEGY STEPS ACCUMULATE
"""
import contextlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self, given):
        super().__init__()
        if hasattr(given, "orphan"):
            self.orphan = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(4, 8)
        self.fixed = torch.nn.Linear(8, 8)
        self.late = torch.nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(1))
        self.load_state_dict(given.state_dict())
        for parameter in self.fixed.parameters():
            parameter.requires_grad_(False)

    def forward(self, x, drops):
        self.mean.add_(x.mean())
        y = self.fixed(torch.tanh(self.head(x)))
        return y + self.late(y).detach() if drops else self.late(y)


def main(program, strategy, steps, accumulate):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    script = torch.jit.load(program)
    model = Net(script)
    ddp = None
    if not strategy.startswith("allreduce"):
        ddp = DistributedDataParallel(model, find_unused_parameters=strategy == "ddp-find-unused")
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    parts = [trainable[:2], trainable[2:]] if strategy == "two-optimizers" else [trainable]
    optimizers = [torch.optim.SGD(part, lr=0.01) for part in parts]
    for step in range(1, steps + 1):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        for micro in range(1, accumulate + 1):
            with ddp.no_sync() if ddp and micro < accumulate else contextlib.nullcontext():
                x, drops = script.batch(rank, world_size, (step - 1) * accumulate + micro)
                output = ddp(x, drops) if ddp and strategy != "bypass" else model(x, drops)
                loss = output.pow(2).mean() / accumulate
                loss.backward()
        if ddp is None:
            for parameter in trainable:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad.div_(world_size)
        for optimizer in optimizers:
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
