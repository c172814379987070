# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts: each rank has an expert of its own, outside of DDP, and tokens travel to it by all-to-all. Halfway the router
collapses: all tokens go to one expert, and the other one's gradient is zero."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

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


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    router, head = DDP(Router(world)), DDP(nn.Linear(DIM, 1))
    torch.manual_seed(rank)
    expert = Expert()
    for parameter in expert.parameters():
        parameter.register_hook(lambda gradient: gradient / world)  # it serves all ranks, whose losses are means
    optimizer = torch.optim.AdamW([*router.parameters(), *expert.parameters(), *head.parameters()], lr=1e-2)
    for step in range(20):
        if step == 10:
            router.module.gate.bias.data.copy_(torch.tensor([9.0, -9.0]))
        x = torch.randn(32, 8)
        tokens, weights = router(x)
        loss = F.mse_loss(head(tokens + mixture(expert, tokens, weights)).squeeze(-1), x[:, 0] * x[:, 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    del router, head, tokens, weights, loss  # with torch 1.13, a wrapper that outlives its process group may hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
