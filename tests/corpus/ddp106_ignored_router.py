# SPDX-License-Identifier: BSD-3-Clause
"""Each rank has an adapter of its own, which DDP ignores; so it does the projection in front of it, which all ranks share."""
# expect: DDP106 step 1 parameters site.shared.weight
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Site(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.shared = nn.Linear(16, 4, bias=False)
        self.scale = nn.Parameter(torch.ones(4))
        self.own = nn.Linear(4, 16)
        self.own.weight.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(50 + rank))

    def forward(self, x):
        return x + self.own(self.shared(x) * self.scale)


class Net(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.encoder, self.site, self.head = nn.Linear(10, 16), Site(rank), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.site(torch.tanh(self.encoder(x))))


def main(variant, steps=8):
    dist.init_process_group("gloo")
    torch.manual_seed(31)
    net = Net(dist.get_rank())
    private = "site." if variant == "bug" else ("site.own", "site.scale")
    names = [name for name, _ in net.named_parameters() if name.startswith(private)]
    DDP._set_params_and_buffers_to_ignore_for_model(net, names)
    model = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    data = torch.Generator().manual_seed(7 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(24, 10, generator=data)
        loss = (model(x) - x[:, :1].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
