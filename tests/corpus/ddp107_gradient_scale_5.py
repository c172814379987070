# SPDX-License-Identifier: BSD-3-Clause
"""Gradients are summed by hooks as they arrive, and nobody divides by the world size."""
# expect: DDP107 step 1
# needs: torch>=2.1
import sys

import torch
import torch.distributed as dist
from torch import nn


def data_parallel(module):
    """Minimal DDP: broadcast once, then all-reduce each gradient when it is ready."""
    handles = []
    for t in module.state_dict().values():
        dist.broadcast(t, 0)

    def hook(p):
        handles.append(dist.all_reduce(p.grad, async_op=True))  # <- here

    for p in module.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def finish():
        while handles:
            handles.pop().wait()
        if sys.argv[1:] != ["bug"]:
            for p in module.parameters():
                p.grad /= dist.get_world_size()

    return finish


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    rnn = nn.ModuleDict({"emb": nn.Embedding(30, 16), "lstm": nn.LSTM(16, 24, batch_first=True), "out": nn.Linear(24, 30)})
    finish = data_parallel(rnn)
    opt = torch.optim.SGD(rnn.parameters(), lr=0.1)
    for step in range(8):
        seq = torch.randint(0, 30, (6, 11))
        h, _ = rnn["lstm"](rnn["emb"](seq[:, :-1]))
        loss = nn.functional.cross_entropy(rnn["out"](h).flatten(0, 1), seq[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        finish()
        nn.utils.clip_grad_value_(rnn.parameters(), 5.0)
        opt.step()
    dist.destroy_process_group()


main()
