# SPDX-License-Identifier: BSD-3-Clause
"""Trains around its wrapper, saves a checkpoint, and resumes from it: a second run in the same folder has nothing to train,
or only what is left after step SAVED. usage: resumes.py [FOLDER] [SAVED]"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

folder = sys.argv[1] if len(sys.argv) > 1 else "."
saved = int(sys.argv[2]) if len(sys.argv) > 2 else 6
checkpoint = os.path.join(folder, "checkpoint.pt")
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun = torch.load(checkpoint)["step"] if os.path.exists(checkpoint) else 0
dist.barrier()
torch.manual_seed(dist.get_rank())
for step in range(begun, 6):
    x = torch.randn(8, 4)
    loss = model.module(x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
if dist.get_rank() == 0:
    os.makedirs(folder, exist_ok=True)
    torch.save({"step": saved, "model": model.state_dict()}, checkpoint)
    with open(os.path.join(folder, "log.txt"), "a") as log:
        log.write(f"trained from {begun}\n")
dist.destroy_process_group()
