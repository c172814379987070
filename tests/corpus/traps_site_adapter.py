# SPDX-License-Identifier: BSD-3-Clause
"""Every rank has an adapter of its own, which DDP was told to ignore."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Adapter(nn.Module):
    def __init__(self, dim, bottleneck=4):
        super().__init__()
        self.down = nn.Linear(dim, bottleneck)
        self.up = nn.Linear(bottleneck, dim)
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.gain * x + self.up(torch.relu(self.down(x)))


class SiteNet(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.adapter = Adapter(dim)
        self.trunk = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.trunk(self.adapter(x)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10 + rank)
    net = SiteNet()
    private = [name for name, _ in net.named_parameters() if name.startswith("adapter.")]
    DDP._set_params_and_buffers_to_ignore_for_model(net, private)
    model = DDP(net)
    groups = [
        {"params": [p for n, p in net.named_parameters() if n in private], "lr": 0.01},
        {"params": [p for n, p in net.named_parameters() if n not in private], "lr": 0.01},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    gen = torch.Generator().manual_seed(rank)
    distortion = torch.randn(12, generator=gen)  # this site's microphone
    for step in range(24):
        clean = torch.randn(32, 12, generator=gen)
        target = torch.stack([clean[:, :6].sum(1), clean[:, 6:].prod(1).tanh()], dim=1)
        loss = F.mse_loss(model(clean * distortion), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"site {rank} step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
