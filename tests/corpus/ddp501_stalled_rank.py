# SPDX-License-Identifier: BSD-3-Clause
"""A prefetch thread dies of a bad record, unseen; its rank waits in the queue for ever."""
# expect: DDP501 ranks 1 step 5
import queue
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read_records(rank, count=8):
    generator = torch.Generator().manual_seed(rank)
    for index in range(count):
        x = torch.randn(16, 10, generator=generator)
        record = {"x": x, "y": x.mean(1, keepdim=True)}
        if rank == 1 and index == 4:
            record.pop("y")  # an incomplete record
        yield record


class Prefetcher:
    """Prepares batches in a thread."""

    def __init__(self, records, tolerant):
        self.records, self.tolerant = records, tolerant
        self.batches = queue.Queue(maxsize=2)
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        for record in self.records:
            if self.tolerant:
                record.setdefault("y", torch.zeros(16, 1))
            self.batches.put((record["x"], record["y"]))
        self.batches.put(None)

    def __iter__(self):
        while True:
            batch = self.batches.get()  # <- here
            if batch is None:
                return
            yield batch


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in Prefetcher(read_records(dist.get_rank()), tolerant=sys.argv[1] == "fixed"):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
