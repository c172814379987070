# SPDX-License-Identifier: BSD-3-Clause
"""A word that the vocabulary does not hold, in the shard of one rank, whose embedding raises."""
# expect: DDP504 ranks 1 step 5
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY = {word: index for index, word in enumerate("the a cat dog sees likes old young and very".split())}
SHARDS = [
    ["the old dog sees a cat", "a cat likes the dog", "the young cat sees the dog", "a very old cat sees a dog"] * 2,
    ["a dog and a cat", "the dog likes a young cat", "a cat and a dog", "the cat likes the cat"] * 2,
]
SHARDS[1][4] = "the dog sees an owl"


class BagOfWords(nn.Module):
    def __init__(self, words, width=16):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.out = nn.Linear(width, words)

    def forward(self, tokens):
        return self.out(self.embedding(tokens).mean(0))


def tokenize(text, unknown):
    return torch.tensor([VOCABULARY.get(word, unknown) for word in text.split()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", choices=["bug", "fixed"])
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    words = len(VOCABULARY) + (1 if args.variant == "fixed" else 0)
    model = DDP(BagOfWords(words))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for text in SHARDS[dist.get_rank()]:
        tokens = tokenize(text, unknown=len(VOCABULARY))
        loss = nn.functional.cross_entropy(model(tokens[:-1]), tokens[-1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
