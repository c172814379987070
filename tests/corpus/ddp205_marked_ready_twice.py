# SPDX-License-Identifier: BSD-3-Clause
"""Preference tuning: two forwards of the wrapper per step, both through reentrant checkpoints of the same blocks."""
# expect: DDP205 ranks 0 1 step 1
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class LM(nn.Module):
    def __init__(self, use_reentrant, vocabulary=30, width=24):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=self.use_reentrant)
        log_probs = self.head(hidden[:, :-1]).log_softmax(-1)
        return log_probs.gather(2, tokens[:, 1:, None]).sum((1, 2))


def dpo_loss(policy, reference, chosen, rejected, beta=0.1):
    with torch.no_grad():
        reference_margin = reference(chosen) - reference(rejected)
    margin = policy(chosen) - policy(rejected)
    return -F.logsigmoid(beta * (margin - reference_margin)).mean()


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = LM(use_reentrant=args.variant == "bug")
    reference = LM(use_reentrant=False).requires_grad_(False)
    reference.load_state_dict(model.state_dict())
    policy = DDP(model)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(args.steps):
        chosen = torch.randint(0, 15, (6, 10), generator=generator)
        rejected = torch.randint(15, 30, (6, 10), generator=generator)
        loss = dpo_loss(policy, reference, chosen, rejected)
        optimizer.zero_grad()
        loss.backward()  # <- here
        optimizer.step()
        print(f"rank {dist.get_rank()} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--steps", type=int, default=6)
    main(parser.parse_args())
