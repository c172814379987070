# SPDX-License-Identifier: BSD-3-Clause
"""Two stages of a pipeline with two replicas each: the gradients are summed over the replicas, and never divided by their number."""
# expect: DDP107 ranks 2 3 step 1
# ranks: 4
import argparse
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

# Two pipeline stages, each of them replicated: ranks 0,1 hold the encoder, ranks 2,3 the decoder.


class Topology:
    def __init__(self, stages):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.replicas = world // stages
        self.stage, self.replica = divmod(rank, self.replicas)
        self.first, self.last = self.stage == 0, self.stage == stages - 1
        self.peer_up = rank + self.replicas
        self.peer_down = rank - self.replicas
        for s in range(stages):
            group = dist.new_group([s * self.replicas + r for r in range(self.replicas)])
            if s == self.stage:
                self.replica_group = group


def encoder():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(),
        nn.Conv2d(8, 4, 3, stride=2, padding=1),
    )


def decoder():
    return nn.Sequential(
        nn.ConvTranspose2d(4, 8, 4, stride=2, padding=1), nn.SiLU(),
        nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1), nn.SiLU(),
        nn.Conv2d(8, 1, 3, padding=1),
    )


def build(stage):
    torch.manual_seed(6)
    parts = [encoder(), decoder()]
    return parts[stage]


def blobs(step, replica, micro_batches, size=6):
    g = torch.Generator().manual_seed(10_000 * replica + step)
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    n = micro_batches * size
    cy, cx = 3 + 10 * torch.rand(2, n, 1, 1, generator=g)
    width = 4 + 8 * torch.rand(n, 1, 1, generator=g)
    image = torch.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / width)
    return image.unsqueeze(1).chunk(micro_batches)


class GPipe:
    """All forwards, then all backwards."""

    def __init__(self, module, topo, micro_batches, act_shape):
        self.module, self.topo, self.m, self.act_shape = module, topo, micro_batches, act_shape

    def run(self, images):
        saved, losses = [], []
        for image in images:
            if self.topo.first:
                out = self.module(image)
                dist.send(out.detach(), self.topo.peer_up)
                saved.append((None, out))
            else:
                act = torch.empty(len(image), *self.act_shape)
                dist.recv(act, self.topo.peer_down)
                act.requires_grad_()
                loss = F.mse_loss(self.module(act), image) / self.m
                losses.append(loss.detach())
                saved.append((act, loss))
        for act, out in reversed(saved):
            if self.topo.last:
                out.backward()
                dist.send(act.grad, self.topo.peer_down)
            else:
                grad = torch.empty_like(out)
                dist.recv(grad, self.topo.peer_up)
                out.backward(grad)
        return torch.stack(losses).sum() if losses else None


def sync_replicas(module, topo):
    handles = [dist.all_reduce(p.grad, group=topo.replica_group, async_op=True) for p in module.parameters()]  # <- here
    for h in handles:
        h.wait()
    if sys.argv[1] == "fixed":
        for p in module.parameters():
            p.grad.mul_(1.0 / topo.replicas)


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("variant")
    ap.add_argument("--stages", type=int, default=2)
    ap.add_argument("--micro-batches", type=int, default=3)
    ap.add_argument("--iters", type=int, default=10)
    opt = ap.parse_args(argv)
    dist.init_process_group("gloo")
    topo = Topology(opt.stages)
    module = build(topo.stage)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    pipe = GPipe(module, topo, opt.micro_batches, act_shape=(4, 4, 4))
    for it in range(opt.iters):
        optimizer.zero_grad()
        loss = pipe.run(blobs(it, topo.replica, opt.micro_batches))
        sync_replicas(module, topo)
        optimizer.step()
        if topo.last and topo.replica == 0:
            print(f"iter {it}: reconstruction {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
