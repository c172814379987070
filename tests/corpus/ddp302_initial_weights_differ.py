# SPDX-License-Identifier: BSD-3-Clause
"""The checkpoint lies on the first machine only, and is loaded after wrapping: the other ranks go on from scratch."""
# expect: DDP302 ranks 0 step 1
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(nn.Module):
    def __init__(self, words=40, tags=4):
        super().__init__()
        self.embedding = nn.Embedding(words, 20)
        self.rnn = nn.GRU(20, 20, batch_first=True)
        self.out = nn.Linear(20, tags)

    def forward(self, sentence):
        return self.out(self.rnn(self.embedding(sentence))[0])


def pretend_earlier_run(path):
    torch.manual_seed(99)
    torch.save(Tagger().state_dict(), path)


def resume(model, path):
    if os.path.exists(path):
        model.load_state_dict(torch.load(path))  # <- here
        print(f"resumed from {os.path.basename(path)}")


def main(args, scratch):
    rank = dist.get_rank()
    path = os.path.join(scratch, "last.pt")
    if rank == 0:
        pretend_earlier_run(path)
    torch.manual_seed(args.seed)
    model = Tagger()
    if args.variant == "fixed":
        resume(model, path)
    ddp = DDP(model)
    if args.variant == "bug":
        resume(ddp.module, path)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
    generator = torch.Generator().manual_seed(args.seed + rank)
    for step in range(args.steps):
        sentence = torch.randint(0, 40, (12, 8), generator=generator)
        loss = nn.functional.cross_entropy(ddp(sentence).flatten(0, 1), (sentence // 10).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as local_disk:  # each machine has its own
        main(parser.parse_args(), local_disk)
    dist.destroy_process_group()
