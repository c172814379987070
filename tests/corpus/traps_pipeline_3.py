# SPDX-License-Identifier: BSD-3-Clause
"""Two pipelines side by side, of two stages each, whose norms have the same names and the same first weights; gradients are averaged by hand over
the ranks with the same stage."""
# ranks: 4
# needs: torch>=2.7
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, NOTES, LENGTH = 12, 26, 10


class Half(nn.Module):
    def __init__(self, stage):
        super().__init__()
        self.inner = nn.Embedding(NOTES, WIDTH) if stage == 0 else nn.Identity()
        self.norm = nn.LayerNorm(WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.outer = nn.Linear(WIDTH, NOTES) if stage == 1 else nn.Identity()

    def forward(self, x):
        x = self.inner(x)
        return self.outer(x + self.memory(self.norm(x))[0])


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    pipeline, replicas = mesh.get_group("pp"), mesh.get_group("dp")
    number = dist.get_rank(pipeline)
    torch.manual_seed(50 + number)
    half = Half(number)
    stage = PipelineStage(half, number, 2, torch.device("cpu"), group=pipeline)
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, notes: F.cross_entropy(out.flatten(0, 1), notes.flatten()))
    optimizer = torch.optim.AdamW(half.parameters(), lr=4e-3)
    songs = torch.Generator().manual_seed(15 + dist.get_rank(replicas))
    for step in range(10):
        song = (torch.randint(NOTES, (8, 1), generator=songs) + 5 * torch.arange(LENGTH + 1)) % NOTES
        optimizer.zero_grad()
        if number == 0:
            schedule.step(song[:, :-1].contiguous())
        else:
            losses = []
            schedule.step(target=song[:, 1:].contiguous(), losses=losses)
            if dist.get_rank(replicas) == 0 and step % 3 == 0:
                print(f"step {step} loss {torch.stack(losses).mean().item():.4f}")
        for parameter in half.parameters():
            dist.all_reduce(parameter.grad, group=replicas)
            parameter.grad /= dist.get_world_size(replicas)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
