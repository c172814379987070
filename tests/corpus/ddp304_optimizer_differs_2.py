# SPDX-License-Identifier: BSD-3-Clause
"""Resuming: the weights are loaded before wrapping, which sends them to all ranks; Adam's moments reach rank 0 only."""
# expect: DDP304 step 5
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Job:
    """One allocation of the cluster: it goes on where the last one stopped."""

    def __init__(self, folder, variant):
        self.rank = dist.get_rank()
        self.path = os.path.join(folder, "last.pt")
        saved = torch.load(self.path) if os.path.exists(self.path) else None  # only rank 0 has the file
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(9, 27), nn.ReLU(), nn.Linear(27, 3))
        if saved:
            net.load_state_dict(saved["model"])
        self.model = DDP(net)  # sends rank 0's weights to all
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        if variant == "fixed":
            state = [saved["optimizer"] if saved else None]
            dist.broadcast_object_list(state, src=0)
            if state[0]:
                self.optimizer.load_state_dict(state[0])
        elif saved:
            self.optimizer.load_state_dict(saved["optimizer"])

    def train(self, steps, seed):
        generator = torch.Generator().manual_seed(seed + self.rank)
        for _ in range(steps):
            x = torch.randn(24, 9, generator=generator)
            loss = nn.functional.cross_entropy(self.model(x), x[:, :3].argmax(1))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()  # <- here
        print(f"rank {self.rank} loss {loss.item():.4f}")
        if self.rank == 0:
            torch.save({"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}, self.path)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as local_disk:
        for job in range(2):
            Job(local_disk, sys.argv[1]).train(steps=4, seed=100 * job)
    dist.destroy_process_group()
