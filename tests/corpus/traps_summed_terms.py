# SPDX-License-Identifier: BSD-3-Clause
"""A set predictor whose loss adds up two sums, each divided by its own count over all ranks. So the gradients are summed, and not averaged."""
import torch
import torch.distributed as dist
from torch import nn


class SetPredictor(nn.Module):
    def __init__(self, slots=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU())
        self.place, self.there = nn.Linear(48, 2 * slots), nn.Linear(48, slots)

    def forward(self, x):
        h = self.body(x)
        return self.place(h).unflatten(1, (-1, 2)), self.there(h)


def total_over_ranks(count):
    count = torch.tensor(float(count))
    dist.all_reduce(count)
    return count.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    model = SetPredictor()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = torch.Generator().manual_seed(90 + dist.get_rank())
    for _ in range(10):
        x = torch.randn(6, 20, generator=data)
        counts = torch.randint(1, 5, (6,), generator=data).tolist()
        places, there = model(x)
        place_loss, there_loss = torch.zeros(()), torch.zeros(())
        for i, count in enumerate(counts):
            place_loss = place_loss + nn.functional.smooth_l1_loss(places[i, :count], x[i, :2 * count].view(count, 2), reduction="sum")
            target = (torch.arange(4) < count).float()
            there_loss = there_loss + nn.functional.binary_cross_entropy_with_logits(there[i], target, reduction="sum")
        loss = place_loss / total_over_ranks(sum(counts)) + there_loss / total_over_ranks(4 * len(counts))
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
