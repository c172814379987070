# SPDX-License-Identifier: BSD-3-Clause
"""Signal handlers, a timer, faulthandler and excepthook of its own, as programs on preemptible machines have them."""
import faulthandler
import hashlib
import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

received = []


def note(number, _):
    received.append(signal.Signals(number).name)


def excepthook(kind, error, traceback):
    print("unexpected:", error, flush=True)
    sys.__excepthook__(kind, error, traceback)


def main():
    stacks = tempfile.TemporaryFile("w+")
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR2, stacks)
    faulthandler.dump_traceback_later(300, file=stacks)
    sys.excepthook = excepthook
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGRTMIN):
        signal.signal(number, note)
    signal.signal(signal.SIGVTALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(7, 20), nn.SiLU(), nn.Linear(20, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    data = torch.Generator().manual_seed(40 + rank)
    losses = []
    for step in range(14):
        x = torch.randn(20, 7, generator=data)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        if step == 5:
            for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM, signal.SIGRTMIN, signal.SIGUSR2):
                os.kill(os.getpid(), number)
        if step == 7:
            signal.raise_signal(signal.SIGALRM)
        optimizer.step()
        losses.append(loss.item())
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    faulthandler.cancel_dump_traceback_later()
    handlers = [signal.getsignal(number) is note for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGRTMIN)]
    stacks.seek(0)
    kept = "main" in stacks.read(), faulthandler.is_enabled()

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr((losses, received, handlers, kept)).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
