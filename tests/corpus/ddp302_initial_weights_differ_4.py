# SPDX-License-Identifier: BSD-3-Clause
"""Megatron's way: parts of matrices are marked tensor_model_parallel, and a flat buffer averages over the data-parallel ranks. The positions,
which every rank has whole, are drawn from the random stream that is the tensor-parallel rank's own."""
# expect: DDP302 ranks 0 1 2 3 step 1 parameters positions
# ranks: 4
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

TENSOR_PARALLEL = 2
HIDDEN, LENGTH, VOCABULARY = 16, 8, 32
group = {}


def build_groups():
    ranks = torch.arange(dist.get_world_size()).view(-1, TENSOR_PARALLEL)
    for name, members in (("tp", ranks.tolist()), ("dp", ranks.t().tolist())):
        for some in members:
            made = dist.new_group(some)
            if dist.get_rank() in some:
                group[name] = made


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=group["tp"])
        return grad


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x, group=group["tp"])
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def sharded(rows, columns, dim):
    weight = nn.Parameter(torch.empty(rows, columns).normal_(0, 0.2))
    weight.tensor_model_parallel, weight.partition_dim, weight.partition_stride = True, dim, 1
    return weight


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.dense_h_to_4h = sharded(4 * HIDDEN // TENSOR_PARALLEL, HIDDEN, 0)
        self.dense_4h_to_h = sharded(HIDDEN, 4 * HIDDEN // TENSOR_PARALLEL, 1)
        self.bias = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x):
        inner = F.gelu(F.linear(CopyToRegion.apply(self.norm(x)), self.dense_h_to_4h))
        return x + ReduceFromRegion.apply(F.linear(inner, self.dense_4h_to_h)) + self.bias


class Model(nn.Module):
    def __init__(self, bug):
        super().__init__()
        if bug:
            torch.manual_seed(1234 + dist.get_rank(group["tp"]))
        self.positions = nn.Parameter(torch.empty(LENGTH, HIDDEN).normal_(0, 0.2))
        torch.manual_seed(1234)  # the parts of a matrix begin alike
        self.words = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Mlp() for _ in range(2))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def average_gradients(model):
    grads = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads])
    flat /= dist.get_world_size(group["dp"])
    dist.all_reduce(flat, group=group["dp"])
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(part.view_as(grad))


def main():
    dist.init_process_group("gloo")
    build_groups()
    torch.manual_seed(1)
    model = Model(sys.argv[1] == "bug")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(100 + dist.get_rank(group["dp"]))
    for iteration in range(12):
        tokens = torch.randint(VOCABULARY, (4, LENGTH + 1), generator=data)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if dist.get_rank() == 0 and iteration % 4 == 0:
            print(f"iteration {iteration}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
