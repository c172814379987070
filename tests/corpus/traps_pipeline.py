# SPDX-License-Identifier: BSD-3-Clause
"""A pipeline of two stages over send and recv: every rank holds other layers, no two are replicas."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

MICRO, MICRO_BATCHES, SEQ, DIM, CLASSES = 6, 3, 10, 16, 5


class Encoder(nn.Module):
    def __init__(self, vocab=40):
        super().__init__()
        self.tokens = nn.Embedding(vocab, DIM)
        self.positions = nn.Parameter(torch.zeros(SEQ, DIM))
        self.mix = nn.Linear(DIM, DIM)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        return self.norm(torch.relu(self.mix(self.tokens(ids) + self.positions)))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.Linear(DIM, 1)
        self.fc = nn.Linear(DIM, 32)
        self.out = nn.Linear(32, CLASSES)

    def forward(self, h):
        h = (torch.softmax(self.pool(h), dim=1) * h).sum(dim=1)
        return self.out(torch.relu(self.fc(h)))


def batch(gen):
    ids = torch.randint(40, (MICRO, SEQ), generator=gen)
    return ids, ids[:, 0] % CLASSES


def first_stage(stage, optimizer, gen):
    sent = []
    for _ in range(MICRO_BATCHES):
        ids, _ = batch(gen)
        h = stage(ids)
        dist.send(h.detach().contiguous(), dst=1)
        sent.append(h)
    optimizer.zero_grad()
    for h in sent:
        grad = torch.empty(MICRO, SEQ, DIM)
        dist.recv(grad, src=1)
        h.backward(grad)
    optimizer.step()


def last_stage(stage, optimizer, gen):
    optimizer.zero_grad()
    total, grads = 0.0, []
    for _ in range(MICRO_BATCHES):
        _, label = batch(gen)
        h = torch.empty(MICRO, SEQ, DIM)
        dist.recv(h, src=0)
        h.requires_grad_(True)
        loss = F.cross_entropy(stage(h), label) / MICRO_BATCHES
        loss.backward()
        grads.append(h.grad)
        total += loss.item()
    for g in grads:
        dist.send(g.contiguous(), dst=0)
    optimizer.step()
    return total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    stage = Encoder() if rank == 0 else Classifier()
    optimizer = torch.optim.Adam(stage.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(11)  # both stages walk through the same batches
    for step in range(18):
        if rank == 0:
            first_stage(stage, optimizer, gen)
        else:
            loss = last_stage(stage, optimizer, gen)
            if step % 6 == 0:
                print(f"step {step} loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
