# SPDX-License-Identifier: BSD-3-Clause
"""A mean over all positions, those with padding included: how long the longest sentence of the other rank is changes what the model computes."""
# command: parity
# verdict: inconclusive
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

BATCH = 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.fc = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.fc(self.embedding(tokens).mean(dim=1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    longest = 12 if rank == 0 else 7
    lengths = torch.randint(longest - 3, longest, (10 * BATCH,), generator=generator).tolist()
    samples = [(torch.randint(1, 30, (n,), generator=generator), n % 3) for n in lengths]

    def collate(batch):
        tokens, labels = zip(*batch)
        return pad_sequence(tokens, batch_first=True), torch.tensor(labels)

    torch.manual_seed(0)
    model = DDP(Classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for tokens, labels in DataLoader(samples, batch_size=BATCH, collate_fn=collate):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
