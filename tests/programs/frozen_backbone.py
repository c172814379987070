# SPDX-License-Identifier: BSD-3-Clause
"""Fine-tuning: the backbone is frozen before it is wrapped; later its last block is thawed and wrapped anew."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def conv_block(channels_in, channels_out):
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1), nn.BatchNorm2d(channels_out), nn.ReLU())


class FineTuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv_block(3, 8), conv_block(8, 16))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # the running statistics are frozen, too
        return self

    def forward(self, images):
        return self.head(self.norm(self.backbone(images).mean((2, 3))))


def parameter_groups(module, lr):
    head = [p for name, p in module.named_parameters() if p.requires_grad and name.startswith("head.")]
    rest = [p for name, p in module.named_parameters() if p.requires_grad and not name.startswith("head.")]
    return [{"params": head, "lr": lr, "weight_decay": 0.1}, {"params": rest, "lr": lr / 10, "weight_decay": 0.0}]


def train(model, optimizer, loader, epochs, losses):
    model.train()
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(19)
    labels = torch.randint(0, 3, (192,))
    images = torch.randn(192, 3, 16, 16) * (1 + labels[:, None, None, None])
    dataset = TensorDataset(images, labels)
    loader = DataLoader(dataset, batch_size=12, sampler=DistributedSampler(dataset))
    module = FineTuned()
    losses = []

    for parameter in module.backbone.parameters():
        parameter.requires_grad = False
    model = DDP(module)
    train(model, torch.optim.AdamW(parameter_groups(module, 1e-2)), loader, range(0, 2), losses)

    # Which parameters are synchronized is fixed when DDP is constructed: thaw, then wrap again.
    module.backbone[1].requires_grad_(True)
    model = DDP(module)
    train(model, torch.optim.AdamW(parameter_groups(module, 5e-3)), loader, range(2, 3), losses)

    digest = hashlib.sha256()
    for tensor in module.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr(losses).encode())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
