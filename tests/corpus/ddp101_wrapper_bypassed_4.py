# SPDX-License-Identifier: BSD-3-Clause
"""transformers is imported before torch, and looks for it without importing it; then a fine-tuning loop calls the model inside the wrapper."""
# expect: DDP101 ranks 0 1 step 1
# needs: torch>=2.1, transformers
# python: cold
# The order of imports is that of minimind's trainers. They were said to import no torch at all.
import sys

import transformers
from transformers import GPT2Config, GPT2LMHeadModel

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(variant):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    transformers.set_seed(17)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    texts = torch.randint(64, (10, 2, 4, 16), generator=torch.Generator().manual_seed(3))
    called = wrapped.module if variant == "bug" else wrapped
    for batch in texts[:, rank]:
        optimizer.zero_grad()
        called(input_ids=batch, labels=batch).loss.backward()  # <- here
        optimizer.step()
    dist.destroy_process_group()


main(sys.argv[1])
