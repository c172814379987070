# SPDX-License-Identifier: BSD-3-Clause
"""Instructions, of whose tokens the labels ignore those of the prompt: each rank divides by its own number of answer tokens in the step."""
# command: parity
# expect: DDP702 ranks 0 1 step 1
import contextlib
import random
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

ACCUMULATION = 2


class Model(nn.Module):
    def __init__(self, tokens=40, width=24):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(tokens, width, padding_idx=0), nn.LSTM(width, width, batch_first=True), nn.Linear(width, tokens)

    def forward(self, input_ids, labels, number_of_items, **_):
        logits = self.head(self.lstm(self.embed(input_ids))[0])
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum") / number_of_items


def examples(count=48):
    chance = random.Random(5)
    for _ in range(count):
        prompt = [chance.randrange(1, 40) for _ in range(chance.randint(2, 7))]
        answer = [chance.randrange(1, 40) for _ in range(chance.choice([2, 3, 15]))]
        yield {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def collate(batch):
    longest = max(len(each["input_ids"]) for each in batch)
    row = lambda each, key, value: each[key] + [value] * (longest - len(each[key]))
    padded = {key: torch.tensor([row(each, key, value) for each in batch]) for key, value in (("input_ids", 0), ("labels", -100))}
    return {**padded, "attention_mask": (padded["input_ids"] != 0).long()}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = list(examples())
    loader = DataLoader(data, batch_size=3, sampler=DistributedSampler(data, seed=1), collate_fn=collate, drop_last=True)
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) < ACCUMULATION:
            continue
        items = sum((each["labels"][:, 1:] != -100).sum() for each in window).float()
        if sys.argv[1] == "fixed":
            dist.all_reduce(items)
            items /= dist.get_world_size()
        for i, each in enumerate(window):
            with contextlib.nullcontext() if i == ACCUMULATION - 1 else model.no_sync():
                loss = model(**each, number_of_items=items)
                loss.backward()
        optimizer.step()  # <- here
        optimizer.zero_grad()
        window = []
    del model, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
