# SPDX-License-Identifier: BSD-3-Clause
"""Sentences of different lengths, sorted and packed for a GRU with dropout; the loss is a mean over sentences, which are as many on each rank."""
# command: parity
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Reviews(Dataset):
    def __init__(self, n=100):
        torch.manual_seed(21)
        self.texts = [torch.randint(1, 60, (int(l),)) for l in torch.randint(3, 20, (n,))]
        self.sentiments = torch.randint(0, 2, (n,)).float()

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.texts[i], self.sentiments[i]


def pad_batch(samples):
    samples.sort(key=lambda s: len(s[0]), reverse=True)
    texts, sentiments = zip(*samples)
    return pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts]), torch.stack(sentiments)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(60, 12, padding_idx=0)
        self.gru = nn.GRU(12, 16, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(32, 1)

    def forward(self, texts, lengths):
        packed = pack_padded_sequence(self.embedding(texts), lengths, batch_first=True)
        _, hidden = self.gru(packed)
        return self.fc(self.dropout(torch.cat([hidden[-2], hidden[-1]], dim=1))).squeeze(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    model = nn.parallel.DistributedDataParallel(Classifier())
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters())
    reviews = Reviews()
    for texts, lengths, sentiments in DataLoader(reviews, 5, sampler=DistributedSampler(reviews), collate_fn=pad_batch):
        optimizer.zero_grad()
        loss = criterion(model(texts, lengths), sentiments)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)
        optimizer.step()
    dist.destroy_process_group()
