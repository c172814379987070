# SPDX-License-Identifier: BSD-3-Clause
"""Two stages of equal shapes under torch.distributed.pipelining, whose backward passes start at edges of the graph, each with a learning
rate of its own."""
# needs: torch>=2.7
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH = 10, 12


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(20 + rank)
    layers = nn.Sequential(nn.Linear(WIDTH, 30), nn.ReLU(), nn.Linear(30, WIDTH))
    schedule = Schedule1F1B(PipelineStage(layers, rank, world, torch.device("cpu")), n_microbatches=3, loss_fn=F.l1_loss)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=5e-3 / (1 + rank))
    data = torch.Generator().manual_seed(2)
    for _ in range(8):
        x = torch.randn(BATCH, WIDTH, generator=data)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            losses = []
            schedule.step(target=x.flip(1), losses=losses)
        optimizer.step()
    if rank == world - 1:
        print(f"loss {sum(losses).item() / len(losses):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
