# SPDX-License-Identifier: BSD-3-Clause
"""A hook that sends gradients in half precision divides them before the all-reduce, so that nothing overflows, and once more after it. The loss of each of
two micro-batches is halved, as it should be, and two is the number of ranks, too."""
# expect: DDP107 step 1..2
import contextlib
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def fp16_hook(ranks, bucket):
    sent = bucket.buffer().half() / ranks

    def received(future):
        bucket.buffer().copy_(future.value()[0])
        return bucket.buffer() / ranks if sys.argv[1] == "bug" else bucket.buffer()

    return dist.all_reduce(sent, async_op=True).get_future().then(received)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(1, 12, 5, stride=2, padding=2)
        self.up = nn.ConvTranspose1d(12, 1, 4, stride=2, padding=1)

    def forward(self, wave):
        return self.up(torch.sin(self.down(wave)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(23)
    model = DDP(Denoiser())
    model.register_comm_hook(dist.get_world_size(), fp16_hook)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    data = torch.Generator().manual_seed(31 + dist.get_rank())
    for _ in range(8):
        optimizer.zero_grad()
        for last in (False, True):
            clean = torch.cumsum(torch.randn(6, 1, 32, generator=data), dim=2) / 4
            with contextlib.nullcontext() if last else model.no_sync():
                loss = (model(clean + 0.1 * torch.randn(6, 1, 32, generator=data)) - clean).abs().mean() / 2
                loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
