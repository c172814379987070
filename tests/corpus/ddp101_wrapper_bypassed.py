# SPDX-License-Identifier: BSD-3-Clause
"""A policy-gradient trainer unwraps the model to sample from it, and goes on with the unwrapped handle for the loss."""
# expect: DDP101 ranks 0 1 step 1
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Policy(nn.Module):
    def __init__(self, vocabulary=17, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])

    @torch.no_grad()
    def generate(self, prompt, length):
        for _ in range(length):
            logits = self(prompt)[:, -1]
            prompt = torch.cat([prompt, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return prompt


def unwrap(model):
    return model.module if isinstance(model, DDP) else model


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    policy = DDP(Policy())
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    torch.manual_seed(args.seed + dist.get_rank())
    for _ in range(args.steps):
        actor = unwrap(policy)
        sampled = actor.generate(torch.randint(0, 17, (8, 2)), length=5)
        reward = (sampled[:, 2:] % 2 == 0).float().mean(1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        model = actor if args.variant == "bug" else policy
        logits = model(sampled[:, :-1])  # <- here
        log_probs = -F.cross_entropy(logits.transpose(1, 2), sampled[:, 1:], reduction="none")
        loss = -(advantage[:, None] * log_probs[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()}: mean reward {reward.mean():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=3)
    main(parser.parse_args())
