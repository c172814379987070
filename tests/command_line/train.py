# SPDX-License-Identifier: BSD-3-Clause
"""A training program for the tests of the command line: a few steps under DistributedDataParallel, and an end of choice.

train.py [--steps N] [--sleep SECONDS] [--end HOW] [--bypass] [--stubborn] [ANYTHING ...]; HOW concerns rank 1 alone, after its second step.
"""
import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--end", default="")
parser.add_argument("--bypass", action="store_true")  # the wrapper's forward
parser.add_argument("--stubborn", action="store_true")  # SIGTERM is ignored
parser.add_argument("words", nargs="*")
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
if args.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"rank {rank} of {dist.get_world_size()} has the words {args.words}", flush=True)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
torch.manual_seed(1 + rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, args.steps + 1):
    loss = (model.module if args.bypass else model)(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(args.sleep)
    if step == 2 and rank == 1:
        if args.end == "exit3":
            sys.exit(3)
        if args.end == "_exit":
            os._exit(4)
        if args.end == "raise":
            raise ValueError("the data is damaged")
        if args.end == "kill":
            os.kill(os.getpid(), 9)
    if step == 2 and args.end == "close":
        os.close(1)
        os.close(2)
    if step == 2 and args.end == "shout":
        line = "x" * 99 + "\n"
        for _ in range(500):
            sys.stdout.write(line * 1000)  # 50 MB of each rank
        print("the last line", flush=True)
    if step == 2 and args.end == "daemon":
        # Goes on living, and holds our stdout, in a session of its own.
        if os.fork() == 0:
            os.setsid()
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)"])
dist.destroy_process_group()
