# SPDX-License-Identifier: BSD-3-Clause
"""Accumulation by setting require_backward_grad_sync between forward and backward: it acts one micro-batch later."""
# expect: DDP103 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

variant = sys.argv[1]
grad_accum_steps = 4
max_steps = 6
vocab_size, block_size, n_embd = 40, 12, 32

dist.init_process_group("gloo")
ddp_rank = dist.get_rank()
master_process = ddp_rank == 0
torch.manual_seed(1337)


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.rnn = nn.GRU(n_embd, n_embd, batch_first=True)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        hidden, _ = self.rnn(self.wte(idx))
        return F.cross_entropy(self.lm_head(hidden).flatten(0, 1), targets.flatten())


model = DDP(CharLM())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
data = torch.Generator().manual_seed(10 + ddp_rank)
for step in range(max_steps):
    optimizer.zero_grad()
    loss_accum = 0.0
    for micro_step in range(grad_accum_steps):
        start = torch.randint(0, vocab_size, (8, 1), generator=data)
        tokens = (start + torch.arange(block_size + 1)) % vocab_size
        x, y = tokens[:, :-1], tokens[:, 1:]
        if variant == "fixed":
            model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
        loss = model(x, y) / grad_accum_steps
        loss_accum += loss.item()
        if variant == "bug":
            model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
        loss.backward()
    optimizer.step()  # <- here
    if master_process:
        print(f"step {step} | loss {loss_accum:.4f}")
dist.destroy_process_group()
