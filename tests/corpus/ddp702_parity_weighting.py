"""Gradient accumulation over padded sentences: each micro-batch is a mean over its own tokens (transformers#34191)."""
# command: parity
# expect: DDP702 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ACCUMULATE = 2


class Sentences(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(2)
        lengths = (3 + 20 * torch.rand(160, generator=generator) ** 2).long()
        self.rows = [torch.randint(1, 40, (int(length),), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    labels = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
    return {"input_ids": ids, "labels": labels}


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.rnn = nn.LSTM(16, 16, batch_first=True)
        self.head = nn.Linear(16, 40)

    def forward(self, ids):
        return self.head(self.rnn(self.embedding(ids))[0])


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = Sentences()
    loader = iter(DataLoader(data, batch_size=5, sampler=DistributedSampler(data, seed=1), collate_fn=collate))
    while True:
        window = [batch for batch, _ in zip(loader, range(ACCUMULATE))]
        if len(window) < ACCUMULATE:
            break
        tokens = sum((batch["labels"][:, 1:] != -100).sum() for batch in window)
        dist.all_reduce(tokens)
        for number, batch in enumerate(window):
            model.require_backward_grad_sync = number == ACCUMULATE - 1
            logits = model(batch["input_ids"])[:, :-1].flatten(0, 1)
            labels = batch["labels"][:, 1:].flatten()
            if mode == "bug":
                loss = F.cross_entropy(logits, labels, ignore_index=-100) / ACCUMULATE
            else:
                loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum") * dist.get_world_size() / tokens
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
