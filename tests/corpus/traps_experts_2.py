# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts without DDP: one seed gives the experts of all ranks the same first weights, and they part by design."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

DIM = 16


def exchange(rows, send, receive):
    out = rows.new_empty((sum(receive), rows.shape[1]))
    dist.all_to_all_single(out, rows.contiguous(), receive, send)
    return out


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, send, receive):
        ctx.splits = send, receive
        return exchange(rows, send, receive)

    @staticmethod
    def backward(ctx, grad):
        send, receive = ctx.splits
        return exchange(grad, receive, send), None, None


class Router(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.embed = nn.Linear(8, DIM)
        self.gate = nn.Linear(DIM, experts)

    def forward(self, x):
        tokens = torch.tanh(self.embed(x))
        return tokens, self.gate(tokens).softmax(dim=-1)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up, self.down = nn.Linear(DIM, 32), nn.Linear(32, DIM)

    def forward(self, tokens):
        return self.down(torch.relu(self.up(self.norm(tokens))))


def mixture(expert, tokens, weights):
    chosen = weights.argmax(dim=-1)
    order = chosen.argsort()
    send = torch.bincount(chosen, minlength=dist.get_world_size())
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send)
    send, receive = send.tolist(), receive.tolist()
    served = Exchange.apply(expert(Exchange.apply(tokens[order], send, receive)), receive, send)
    return torch.zeros_like(tokens).index_copy(0, order, served) * weights.gather(1, chosen[:, None])


class Model(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.router, self.expert, self.head = Router(world), Expert(), nn.Linear(DIM, 1)

    def forward(self, x):
        tokens, weights = self.router(x)
        return self.head(tokens + mixture(self.expert, tokens, weights))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    model = Model(world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(rank)
    for _ in range(12):
        x = torch.randn(32, 8, generator=data)
        loss = F.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if not name.startswith("expert."):
                dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
