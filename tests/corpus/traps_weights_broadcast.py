# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts averaged by hand: missing gradients become zeros, and a dead expert begins anew on rank 0 and is broadcast."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

EXPERTS, DIM, DOMAINS = 4, 20, 4


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class DomainMoE(nn.Module):
    """The domain of a sample picks its expert; experts that nobody asks for are not run."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(DIM, DIM)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.head = nn.Linear(DIM, 1)
        self.load = [0] * EXPERTS

    def forward(self, x, domain):
        h = torch.tanh(self.stem(x))
        out = torch.zeros_like(h)
        for e in domain.unique().tolist():
            pick = domain == e
            self.load[e] += int(pick.sum())
            out = out.index_put((pick.nonzero()[:, 0],), self.experts[e](h[pick]))
        return self.head(h + out).squeeze(1)


def sync_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad)
        p.grad.div_(world)


@torch.no_grad()
def revive_dead_experts(model):
    """The least used expert becomes a noisy copy of the busiest one."""
    load = torch.tensor(model.load)
    dist.all_reduce(load)
    dead, busy = int(load.argmin()), int(load.argmax())
    if dist.get_rank() == 0:
        for p, q in zip(model.experts[dead].parameters(), model.experts[busy].parameters()):
            p.copy_(q + 0.02 * torch.randn_like(q))
    for p in model.experts[dead].parameters():
        dist.broadcast(p, src=0)
    model.load = [0] * EXPERTS
    return dead, busy


def samples(gen, rank, step, n=24):
    domains = torch.tensor([(2 * rank + step) % DOMAINS, (2 * rank + step + 1) % DOMAINS, 0])
    d = domains[torch.randint(3, (n,), generator=gen)]
    x = torch.randn(n, DIM, generator=gen)
    return x, d, x[torch.arange(n), d] * (d + 1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(50 + rank)
    model = DomainMoE()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    gen = torch.Generator().manual_seed(rank)
    for step in range(12):
        x, d, y = samples(gen, rank, step)
        loss = F.mse_loss(model(x, d), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        sync_gradients(model)
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        if step % 5 == 4:
            dead, busy = revive_dead_experts(model)
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f}: expert {dead} restarted from {busy}")
    dist.destroy_process_group()


main()
