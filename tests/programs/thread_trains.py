# SPDX-License-Identifier: BSD-3-Clause
"""A thread trains while the main thread evaluates copies of the model that it is handed, and another one loads the data."""
import copy
import hashlib
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, EVERY = 20, 5


def load(rank, batches):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        batches.put(torch.rand(12, 9, generator=generator))


def train(model, batches, snapshots, losses):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, STEPS + 1):
        x = batches.get()
        loss = nn.functional.smooth_l1_loss(model(x), x.sort(1).values)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % EVERY == 0:
            snapshots.put(copy.deepcopy(model.module))
    snapshots.put(None)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    model = DDP(nn.Sequential(nn.Linear(9, 32), nn.ELU(), nn.Linear(32, 9)))
    batches, snapshots, losses, scores = queue.Queue(maxsize=2), queue.Queue(), [], []
    threads = [threading.Thread(target=load, args=(rank, batches)), threading.Thread(target=train, args=(model, batches, snapshots, losses))]
    for thread in threads:
        thread.start()
    held_out = torch.rand(50, 9, generator=torch.Generator().manual_seed(1000))
    while (snapshot := snapshots.get()) is not None:
        snapshot.eval()
        with torch.no_grad():
            scores.append((snapshot(held_out) - held_out.sort(1).values).abs().mean().item())
    for thread in threads:
        thread.join()

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, scores)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
