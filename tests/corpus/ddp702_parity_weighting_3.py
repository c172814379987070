# SPDX-License-Identifier: BSD-3-Clause
"""Each rank divides its gradients by the number of its own tokens, which the batch brings along; fairseq's multiply_grads takes those of all ranks."""
# command: parity
# expect: DDP702 ranks 0 1 step 1
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PAD = 1


@dataclass
class Sample:
    src_tokens: torch.Tensor
    target: torch.Tensor
    nsentences: int
    ntokens: int


class Sentences(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = 4 + int(14 * torch.rand(1, generator=generator) ** 2)
        return 2 + (torch.randint(0, 30, (1,), generator=generator) + 3 * torch.arange(length)) % 30


def collate(sentences):
    pad = lambda rows: nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return Sample(pad([s[:-1] for s in sentences]), pad([s[1:] for s in sentences]), len(sentences), sum(len(s) - 1 for s in sentences))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=32, width=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.output_projection = nn.Linear(width, vocabulary)

    def forward(self, src_tokens):
        return self.output_projection(self.rnn(self.embed_tokens(src_tokens))[0])


def train_step(mode, model, optimizer, sample):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(sample.src_tokens).transpose(1, 2), sample.target, ignore_index=PAD, reduction="sum")
    sample_size = torch.tensor(float(sample.ntokens))
    if mode == "fixed":
        dist.all_reduce(sample_size)
        sample_size /= dist.get_world_size()
    (loss / sample_size).backward()
    optimizer.step()


def main(mode):
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(LanguageModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    dataset = Sentences()
    for sample in DataLoader(dataset, batch_size=6, sampler=DistributedSampler(dataset), collate_fn=collate):
        train_step(mode, model, optimizer, sample)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
