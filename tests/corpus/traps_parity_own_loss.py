# SPDX-License-Identifier: BSD-3-Clause
"""The loss divides by the weights of the program's own masks: no data that one process could be given in its place."""
# command: parity
# verdict: inconclusive
# needs: torch>=2
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def crops(rank, world, per_rank=6, side=16):
    """Random cell images: background, cell body, nucleus, debris."""
    g = torch.Generator().manual_seed(271)
    yy, xx = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    while True:
        images, masks = [], []
        for _ in range(per_rank * world):
            mask = torch.zeros(side, side, dtype=torch.long)
            for _ in range(int(torch.randint(1, 4, (), generator=g))):
                cy, cx = torch.randint(2, side - 2, (2,), generator=g)
                r = (yy - cy) ** 2 + (xx - cx) ** 2
                size = int(torch.randint(4, 16, (), generator=g))
                mask[r < size] = 1
                mask[r < size // 4] = 2
            if torch.rand((), generator=g) < 0.4:
                y, x = torch.randint(0, side - 2, (2,), generator=g)
                mask[y : y + 2, x : x + 2] = 3
            tone = torch.tensor([0.1, 0.5, 0.9, 0.3])[mask]
            images.append(tone + 0.15 * torch.randn(side, side, generator=g))
            masks.append(mask)
        yield torch.stack(images)[rank::world].unsqueeze(1), torch.stack(masks)[rank::world]


def double_conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, c=8, classes=4):
        super().__init__()
        self.down1, self.down2 = double_conv(1, c), double_conv(c, 2 * c)
        self.mid = double_conv(2 * c, 2 * c)
        self.up2, self.up1 = double_conv(4 * c, c), double_conv(2 * c, c)
        self.head = nn.Conv2d(c, classes, 1)

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(F.max_pool2d(d1, 2))
        m = self.mid(F.max_pool2d(d2, 2))
        u2 = self.up2(torch.cat([F.interpolate(m, scale_factor=2), d2], 1))
        u1 = self.up1(torch.cat([F.interpolate(u2, scale_factor=2), d1], 1))
        return self.head(u1)


class WeightedPixelLoss(nn.Module):
    def __init__(self, class_weight):
        super().__init__()
        self.register_buffer("class_weight", torch.tensor(class_weight))

    def forward(self, logits, mask):
        total = F.cross_entropy(logits, mask, weight=self.class_weight, reduction="sum")
        norm = self.class_weight[mask].sum()
        dist.all_reduce(norm)
        return total / (norm / dist.get_world_size())


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(4)
net = DDP(UNet())
criterion = WeightedPixelLoss([0.2, 1.0, 6.0, 12.0])
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for i, (image, mask) in zip(range(10), crops(rank, world)):
    logits = net(image)
    loss = criterion(logits, mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and i % 3 == 0:
        hits = [(logits.argmax(1)[mask == c] == c).float().mean().item() for c in range(3)]
        print(i, f"{loss.item():.3f}", [f"{h:.2f}" for h in hits])
dist.destroy_process_group()
