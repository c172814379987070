# SPDX-License-Identifier: BSD-3-Clause
"""The loss is divided by the tokens of all ranks, and DistributedDataParallel divides by the world size once more (transformers#34242)."""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Corpus(Dataset):
    def __init__(self, size, vocab_size):
        g = torch.Generator().manual_seed(11)
        self.examples = [torch.randint(1, vocab_size, (torch.randint(5, 16, (1,), generator=g).item(),), generator=g) for _ in range(size)]

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        return self.examples[i]


def data_collator(examples):
    input_ids = nn.utils.rnn.pad_sequence(examples, batch_first=True)
    return dict(input_ids=input_ids, attention_mask=(input_ids != 0).long(), labels=input_ids.masked_fill(input_ids == 0, -100))


class Model(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.embed_positions = nn.Embedding(32, hidden_size)
        self.self_attn = nn.MultiheadAttention(hidden_size, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, input_ids, attention_mask, labels, num_items_in_batch):
        length = input_ids.size(1)
        hidden = self.embed_tokens(input_ids) + self.embed_positions(torch.arange(length))
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = hidden + self.self_attn(hidden, hidden, hidden, key_padding_mask=attention_mask == 0, attn_mask=causal, need_weights=False)[0]
        logits = self.lm_head(self.norm(hidden))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")
        return loss / num_items_in_batch, logits


class Trainer:
    def __init__(self, model, dataset, mode):
        self.mode = mode
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        self.loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, shuffle=False), collate_fn=data_collator)

    def compute_loss(self, inputs):
        num_items_in_batch = (inputs["labels"][:, 1:] != -100).sum()
        dist.all_reduce(num_items_in_batch)
        loss, _ = self.model(**inputs, num_items_in_batch=num_items_in_batch)
        if self.mode == "fixed":
            loss *= dist.get_world_size()
        return loss

    def train(self):
        for inputs in self.loader:
            self.compute_loss(inputs).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
Trainer(Model(50, 16), Corpus(96, 50), sys.argv[1]).train()
dist.destroy_process_group()
