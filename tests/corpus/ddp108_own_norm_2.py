# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallelism in functions, the parameters in a dict: each rank clips by a norm over its own shards and the replicated parameters."""
# expect: DDP108 ranks 0 1 step 1
# needs: torch>=2
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

DIM, HEADS, DEPTH, PATCH, SIDE, CLASSES = 16, 4, 2, 4, 16, 4
MAX_NORM = 0.25


class _Enter(torch.autograd.Function):
    """Identity forward, sum of the ranks' gradients backward."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g


class _Leave(torch.autograd.Function):
    """Sum of the ranks' outputs forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def init(seed=21):
    gen = torch.Generator().manual_seed(seed)
    split = set()
    params = {}

    def weight(name, rows, cols, axis=None):
        w = torch.randn(rows, cols, generator=gen) * cols**-0.5
        if axis is not None:
            w = w.chunk(world, axis)[rank].clone()
            split.add(name)
        params[name] = w

    tokens = (SIDE // PATCH) ** 2
    weight("patch.w", DIM, PATCH * PATCH)
    params["patch.b"] = torch.zeros(DIM)
    weight("pos", tokens, DIM)
    for i in range(DEPTH):
        for part in ("q", "k", "v"):
            weight(f"{i}.attn.{part}", DIM, DIM, axis=0)
        weight(f"{i}.attn.out", DIM, DIM, axis=1)
        weight(f"{i}.mlp.up", 4 * DIM, DIM, axis=0)
        weight(f"{i}.mlp.down", DIM, 4 * DIM, axis=1)
        for ln in ("ln1", "ln2"):
            params[f"{i}.{ln}.w"] = torch.ones(DIM)
            params[f"{i}.{ln}.b"] = torch.zeros(DIM)
    params["head.ln.w"] = torch.ones(DIM)
    params["head.ln.b"] = torch.zeros(DIM)
    weight("head.w", CLASSES, DIM)
    return {k: v.requires_grad_() for k, v in params.items()}, split


def heads(x):
    return x.unflatten(-1, (HEADS // world, -1)).transpose(1, 2)


def vit(p, images):
    patches = F.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
    x = F.linear(patches, p["patch.w"], p["patch.b"]) + p["pos"]
    for i in range(DEPTH):
        h = _Enter.apply(F.layer_norm(x, (DIM,), p[f"{i}.ln1.w"], p[f"{i}.ln1.b"]))
        q, k, v = (heads(F.linear(h, p[f"{i}.attn.{part}"])) for part in "qkv")
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + _Leave.apply(F.linear(a, p[f"{i}.attn.out"]))
        h = _Enter.apply(F.layer_norm(x, (DIM,), p[f"{i}.ln2.w"], p[f"{i}.ln2.b"]))
        x = x + _Leave.apply(F.linear(F.gelu(F.linear(h, p[f"{i}.mlp.up"])), p[f"{i}.mlp.down"]))
    x = F.layer_norm(x.mean(1), (DIM,), p["head.ln.w"], p["head.ln.b"])
    return F.linear(x, p["head.w"])


def draw_images(gen, n=20):
    """Bright quadrants on a noisy background."""
    label = torch.randint(0, CLASSES, (n,), generator=gen)
    img = 0.5 * torch.randn(n, 1, SIDE, SIDE, generator=gen)
    for row, k in enumerate(label.tolist()):
        y, x = divmod(k, 2)
        img[row, :, y * 8 : y * 8 + 8, x * 8 : x * 8 + 8] += 1.0
    return img, label


def clip_gradients(p, split):
    squares = torch.zeros(2)
    for name, t in p.items():
        squares[int(name in split)] += t.grad.square().sum()
    across = squares[1:].clone()
    if sys.argv[1] == "fixed":
        dist.all_reduce(across)
    total = (squares[0] + across[0]).sqrt()
    factor = (MAX_NORM / (total + 1e-6)).clamp(max=1.0)
    for t in p.values():
        t.grad.mul_(factor)
    return total.item()


params, split = init()
opt = torch.optim.SGD(params.values(), lr=0.3, momentum=0.9)
gen = torch.Generator().manual_seed(7)
for it in range(12):
    images, label = draw_images(gen)
    loss = F.cross_entropy(vit(params, images), label)
    opt.zero_grad()
    loss.backward()
    norm = clip_gradients(params, split)
    opt.step()  # <- here
    if rank == 0:
        print("it %2d loss %.4f grad norm %.3f" % (it, loss.item(), norm))
dist.destroy_process_group()
