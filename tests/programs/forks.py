# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that fork: a child that prepares the data, a metrics process that uses torch a little, a subprocess."""
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def prepare_data(path):
    """In a child, so that its memory is gone afterwards. It ends as a script does, with all its exit handlers."""
    child = os.fork()
    if child == 0:
        torch.save(torch.randn(192, 6, generator=torch.Generator().manual_seed(77)), path)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    data = torch.load(path)
    os.remove(path)
    return data


def metrics_process(inbox, outbox):
    """Fits a line through the losses that it is sent: a model and an optimizer of its own, no process group."""
    line = nn.Linear(1, 1)
    nn.init.zeros_(line.weight)
    nn.init.zeros_(line.bias)
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    for losses in iter(inbox.get, None):
        x = torch.linspace(0, 1, len(losses)).unsqueeze(1)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.mse_loss(line(x).squeeze(1), torch.tensor(losses)).backward()
            optimizer.step()
        outbox.put(line.weight.item())


def norms_by_fork(model):
    """Parameter norms, computed in a forked child and sent back through a pipe."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        with os.fdopen(write_end, "w") as pipe:
            json.dump([parameter.detach().norm().item() for parameter in model.parameters()], pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        norms = json.load(pipe)
    assert os.waitpid(child, 0)[1] == 0
    return norms


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    data = prepare_data(f"forks_{rank}.pt")
    dist.init_process_group("gloo")
    fork = multiprocessing.get_context("fork")
    inbox, outbox = fork.Queue(), fork.Queue()
    metrics = fork.Process(target=metrics_process, args=(inbox, outbox), daemon=True)
    metrics.start()

    torch.manual_seed(9)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, slopes = [], []
    for step in range(15):
        x = data[rank::world_size].roll(step * 7, 0)[:24]
        loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 5 == 4:
            inbox.put(losses)
            slopes.append(outbox.get())
    inbox.put(None)
    metrics.join()
    norms = norms_by_fork(model)
    version = subprocess.run([sys.executable, "-c", "import torch; print(torch.zeros(3).sum().item(), torch.__version__)"],
                             stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, slopes, norms, version)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
