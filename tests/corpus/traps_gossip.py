# SPDX-License-Identifier: BSD-3-Clause
"""Decentralized SGD: after each step a rank averages its weights with those of one other, another one each time, and they are never equal on all ranks."""
# ranks: 4
import torch
import torch.distributed as dist
from torch import nn


class Gossip:
    """Partners are those whose rank differs in one bit. Weights are sent as they were before this exchange."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.round = 0

    @torch.no_grad()
    def exchange(self):
        partner = dist.get_rank() ^ (1 << self.round % 2)
        self.round += 1
        mine = torch.cat([p.flatten() for p in self.parameters])
        theirs = torch.empty_like(mine)
        for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, partner), dist.P2POp(dist.irecv, theirs, partner)]):
            request.wait()
        at = 0
        for parameter in self.parameters:
            parameter.lerp_(theirs[at:at + parameter.numel()].view_as(parameter), 0.4)
            at += parameter.numel()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    gossip = Gossip(model)
    data = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(16):
        x = torch.randn(16, 8, generator=data) + 0.3 * dist.get_rank()
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gossip.exchange()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
