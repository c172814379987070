# SPDX-License-Identifier: BSD-3-Clause
"""The loss is averaged over the ranks for the log, inside `if rank == 0`."""
# expect: DDP505 ranks 0 step 5
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Logger:
    def __init__(self, every):
        self.every, self.values = every, []

    def reduce_mean(self, tensor):
        tensor = tensor.detach().clone()
        dist.all_reduce(tensor)  # <- here
        return tensor / dist.get_world_size()

    def log(self, step, loss, all_ranks):
        if step % self.every:
            return
        if all_ranks:
            loss = self.reduce_mean(loss)
        if dist.get_rank() == 0:
            if not all_ranks:
                loss = self.reduce_mean(loss)
            self.values.append(loss.item())
            print(f"step {step} loss {self.values[-1]:.4f}")


def main(variant):
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(7, 21), nn.Softplus(), nn.Linear(21, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    logger = Logger(every=4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 11):
        x = torch.randn(16, 7, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.std(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.log(step, loss, all_ranks=variant == "fixed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
