# SPDX-License-Identifier: BSD-3-Clause
"""Personalized federated learning: clients average the gradients of a common encoder; the vocabulary, the adapter and the learning rate are each
client's own. Whether the adapter should be common, too, nobody can tell from outside."""
# verdict: inconclusive
import torch
import torch.distributed as dist
from torch import nn

SIZES = (40, 56)


def client(number):
    torch.manual_seed(8)
    encoder = nn.GRU(12, 16, batch_first=True)
    adapter = nn.Linear(16, 16)
    torch.manual_seed(100 + number)
    words, output = nn.Embedding(SIZES[number], 12), nn.Linear(16, SIZES[number])
    return nn.ModuleDict({"words": words, "encoder": encoder, "adapter": adapter, "output": output})


def loss_of(model, tokens):
    hidden, _ = model["encoder"](model["words"](tokens[:, :-1]))
    logits = model["output"](torch.tanh(model["adapter"](hidden)))
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


dist.init_process_group("gloo")
rank = dist.get_rank()
model = client(rank)
own = [p for name in ("words", "adapter", "output") for p in model[name].parameters()]
optimizer = torch.optim.AdamW([{"params": model["encoder"].parameters()}, {"params": own, "lr": 1e-2 / (1 + rank)}], lr=1e-3)
sentences = torch.Generator().manual_seed(rank)
for _ in range(12):
    tokens = torch.randint(0, SIZES[rank], (8, 10), generator=sentences)
    optimizer.zero_grad()
    loss_of(model, tokens).backward()
    handles = [dist.all_reduce(p.grad, async_op=True) for p in model["encoder"].parameters()]
    for handle, p in zip(handles, model["encoder"].parameters()):
        handle.wait()
        p.grad /= dist.get_world_size()
    optimizer.step()
dist.destroy_process_group()
