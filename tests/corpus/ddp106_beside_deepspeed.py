# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed, ZeRO 1, for the generator; the discriminator has an optimizer of its own, and nothing reduces its gradients."""
# needs: deepspeed
# expect: DDP106 ranks 0 1 step 1..2 parameters *critic* *0.* *2.*
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from torch import nn

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or it compiles C++ when it starts
CONFIG = {"train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True, "steps_per_print": 1000}


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))

    def forward(self, x):
        return self.critic(x).squeeze(1)


def real(step):
    noise = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return torch.randn(16, 4, generator=noise) * 0.3 + torch.tensor([1.0, -1.0, 0.5, 0.0]), torch.randn(16, 8, generator=noise)


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(2)
    generator = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))
    critic = Critic()
    engine, _, _, _ = deepspeed.initialize(model=generator, optimizer=torch.optim.Adam(generator.parameters(), lr=1e-3), config=CONFIG)
    own = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for step in range(12):
        samples, latent = real(step)
        loss = nn.functional.softplus(-critic(samples)).mean() + nn.functional.softplus(critic(engine(latent).detach())).mean()
        own.zero_grad()
        loss.backward()
        if sys.argv[1] == "fixed":
            for parameter in critic.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        own.step()
        engine.backward(nn.functional.softplus(-critic(engine(latent))).mean())
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
