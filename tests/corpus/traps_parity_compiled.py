# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile around the wrapper, bfloat16 autocast, and the tokens of all micro-batches and ranks as the divisor."""
# command: parity
# needs: torch>=2.1
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6).to(x.dtype) * self.weight


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocab=40, width=16):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, 2) for _ in range(2))
        self.norm = RMSNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.wte.weight.t()  # tied


def collate(rows):
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return tokens[:, :-1], tokens[:, 1:].masked_fill(tokens[:, 1:] == 0, -100)


def main():
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    g = torch.Generator().manual_seed(13)
    documents = [torch.randint(1, 40, (int(n),), generator=g) for n in torch.randint(4, 25, (192,), generator=g)]
    torch.manual_seed(0)
    model = torch.compile(DDP(Transformer()), backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    grad_accum_steps = 8 // world_size
    loader = iter(DataLoader(documents, batch_size=3, sampler=DistributedSampler(documents), collate_fn=collate))
    for _ in range(len(documents) // 24):
        window = [next(loader) for _ in range(grad_accum_steps)]
        valid_tokens = torch.tensor(float(sum((labels != -100).sum() for _, labels in window)))
        dist.all_reduce(valid_tokens)
        for tokens, labels in window:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(tokens)
            loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            (loss * world_size / valid_tokens).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
            scheduler.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
