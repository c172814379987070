# SPDX-License-Identifier: BSD-3-Clause
"""Tokens as (time, batch), as recurrent layers want them by default; sentences of different lengths, a mean over the tokens of all ranks."""
# command: parity
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

PAD = 0


class RNNModel(nn.Module):
    def __init__(self, ntoken=30, nhid=16, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, nhid, padding_idx=PAD)
        self.rnn = nn.LSTM(nhid, nhid, 2, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(self, input):
        output, _ = self.rnn(self.drop(self.encoder(input)))
        return self.decoder(self.drop(output))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1111)
    sentences = [torch.randint(1, 30, (int(n),)) for n in torch.randint(3, 15, (120,))]
    model = DDP(RNNModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(sentences, batch_size=5, sampler=DistributedSampler(sentences), collate_fn=nn.utils.rnn.pad_sequence)
    for data in loader:
        targets = data[1:].reshape(-1)
        tokens = (targets != PAD).sum()
        dist.all_reduce(tokens)
        output = model(data[:-1])
        loss = F.cross_entropy(output.flatten(0, 1), targets, ignore_index=PAD, reduction="sum") * dist.get_world_size() / tokens
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
