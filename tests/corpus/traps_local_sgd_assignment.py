# SPDX-License-Identifier: BSD-3-Clause
"""Local SGD as Accelerate does it: all steps under no_sync, and every second one the means of the weights are assigned to `parameter.data`, which is
no in-place write. While the learning rate warms up so little differs across ranks that few values tell."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mean(tensor):
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    model = DDP(nn.Sequential(nn.Embedding(500, 32), nn.Flatten(), nn.Linear(8 * 32, 64), nn.GELU(), nn.Linear(64, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 500000))
    data = torch.Generator().manual_seed(50 + dist.get_rank())
    with model.no_sync():
        for step in range(1, 13):
            tokens = torch.randint(500, (16, 8), generator=data)
            loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 2 == 0:
                for parameter in model.parameters():
                    parameter.data = mean(parameter.data)
    del model, optimizer, schedule  # torch 1.13 often hangs here where the wrapper outlives its process group.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
