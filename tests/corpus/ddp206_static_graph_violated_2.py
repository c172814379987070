# SPDX-License-Identifier: BSD-3-Clause
"""static_graph=True, and the auxiliary head is trained during the warm-up only."""
# expect: DDP206 ranks 0 1 step 5 parameters auxiliary.*
# also: DDP208
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WARM_UP_STEPS = 4


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(8, 24, batch_first=True)
        self.ctc = nn.Linear(24, 12)
        self.auxiliary = nn.Linear(24, 2)

    def forward(self, frames, with_auxiliary):
        hidden, _ = self.encoder(frames)
        speaker = self.auxiliary(hidden.mean(1)) if with_auxiliary else None
        return self.ctc(hidden), speaker


dist.init_process_group("gloo")
torch.manual_seed(1)
flags = {"static_graph": True} if sys.argv[1] == "bug" else {"find_unused_parameters": True}
model = DDP(Speech(), **flags)  # <- here
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
audio = torch.Generator().manual_seed(6 + dist.get_rank())
for step in range(10):
    frames = torch.randn(8, 15, 8, generator=audio)
    tokens, speaker = model(frames, with_auxiliary=step < WARM_UP_STEPS)
    loss = nn.functional.cross_entropy(tokens.flatten(0, 1), frames.argmax(2).flatten())
    if speaker is not None:
        loss = loss + nn.functional.cross_entropy(speaker, (frames.mean((1, 2)) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
