# SPDX-License-Identifier: BSD-3-Clause
"""A framework tells PyTorch's error in its own words: its user sees no names of parameters, and the traceback is the framework's."""
# expect: DDP201 ranks 0 1 step 1 parameters pooler.*
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

ADVICE = ("It looks like your LightningModule has parameters that were not used in producing the loss returned by training_step. If this is "
          "intentional, you must enable the detection of unused parameters in DDP, either by setting the string value "
          "`strategy='ddp_find_unused_parameters_true'` or by setting the flag in the strategy with "
          "`strategy=DDPStrategy(find_unused_parameters=True)`.")


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(60, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        if sys.argv[1] == "bug":
            self.pooler = nn.Linear(16, 16)  # of the pre-trained model, for sentence pairs
        self.tags = nn.Linear(16, 5)

    def forward(self, tokens):
        return self.tags(self.encoder(self.embedding(tokens)))


class Strategy:
    def __init__(self, model):
        self.model = DDP(model)

    def training_step(self, *args):
        try:
            return self.model(*args)
        except RuntimeError as error:
            if "Expected to have finished reduction" in str(error):
                raise RuntimeError(ADVICE) from None
            raise


def fit(model, steps=5):
    strategy = Strategy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        tokens = torch.randint(60, (8, 10), generator=data)
        loss = nn.functional.cross_entropy(strategy.training_step(tokens).flatten(0, 1), (tokens % 5).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    fit(Sentences())
    dist.destroy_process_group()
