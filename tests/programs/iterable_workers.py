# SPDX-License-Identifier: BSD-3-Clause
"""A stream (IterableDataset) shared out by rank and by DataLoader worker."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOCABULARY = 40


class Stream(IterableDataset):
    """Sentence number i of an endless text, i = 0, 1, ...; every worker of every rank takes its own share."""

    def __init__(self, rank, world_size, count):
        self.rank, self.world_size, self.count = rank, world_size, count

    def __iter__(self):
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        share = self.rank * workers + number
        for index in range(share, self.count, self.world_size * workers):
            generator = torch.Generator().manual_seed(index)
            words = torch.randint(1, VOCABULARY, (9,), generator=generator)
            yield words, words.max() * 4 // VOCABULARY


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCABULARY, 24, mode="max")
        self.classify = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, words):
        return self.classify(self.bag(words))


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    loader = DataLoader(Stream(rank, world_size, count=256), batch_size=16, num_workers=2, drop_last=True)
    model = DDP(BagOfWords())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    for epoch in range(3):
        for words, labels in loader:
            loss = nn.functional.cross_entropy(model(words), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"rank {rank} epoch {epoch}: loss {losses[-1]:.4f}")

    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(repr(losses).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
