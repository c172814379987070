# SPDX-License-Identifier: BSD-3-Clause
"""Weight averages by deepcopy and by AveragedModel, and whole models (not only their state) saved and loaded."""
import copy
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel

WHOLE = "ema_whole_model.pt"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.tag = nn.Linear(24, 4)

    def forward(self, words):
        return self.tag(self.rnn(self.embed(words))[0])


@torch.no_grad()
def update_ema(ema, model, decay):
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.lerp_(parameter, 1 - decay)


def train(model, optimizer, generator, steps, after_step):
    for _ in range(steps):
        words = torch.randint(0, 30, (8, 12), generator=generator)
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), (words % 4).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after_step()
    return loss


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    model = DDP(Tagger())
    ema = copy.deepcopy(model.module).eval().requires_grad_(False)
    averaged = AveragedModel(model.module)
    wrapped_average = AveragedModel(model)  # of the wrapper itself, as the SWA tutorials do
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(rank)

    def average():
        update_ema(ema, model.module, decay=0.9)
        averaged.update_parameters(model.module)
        wrapped_average.update_parameters(model)

    train(model, optimizer, generator, 12, average)
    if rank == 0:
        torch.save(model.module, WHOLE)
        torch.save(ema, "ema_" + WHOLE)
    dist.barrier()
    restored = torch.load(WHOLE, weights_only=False)
    loaded_ema = torch.load("ema_" + WHOLE, weights_only=False)
    dist.barrier()
    if rank == 0:
        os.remove(WHOLE)
        os.remove("ema_" + WHOLE)

    # Go on with the model that came back from the file.
    model = DDP(restored)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss = train(model, optimizer, generator, 8, lambda: update_ema(ema, model.module, decay=0.9))

    digest = hashlib.sha256()
    for module in (model.module, ema, averaged, wrapped_average, loaded_ema):
        for tensor in module.state_dict().values():
            digest.update(tensor.detach().numpy().tobytes())
    digest.update(loss.detach().numpy().tobytes())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
