# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face accelerate: prepare(), accumulate(), clipping and metrics through the accelerator."""
# needs: torch>=2.1, accelerate
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.hidden = nn.Linear(features, 48)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(48, classes)

    def forward(self, x):
        return self.head(self.dropout(torch.relu(self.hidden(self.norm(x)))))


def spirals(count):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, 12, generator=generator)
    return TensorDataset(x, (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 0.5).long())


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(21)
    model = Classifier(12, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    train_loader = DataLoader(spirals(320), batch_size=8, shuffle=True)
    eval_loader = DataLoader(spirals(40), batch_size=8)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    train_loader, eval_loader = accelerator.prepare(train_loader, eval_loader)

    losses = []
    for epoch in range(2):
        model.train()
        for x, y in train_loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())

        model.eval()
        right = []
        for x, y in eval_loader:
            with torch.no_grad():
                predictions = model(x).argmax(-1)
            predictions, y = accelerator.gather_for_metrics((predictions, y))
            right.append((predictions == y).float())
        accelerator.print(f"epoch {epoch}: accuracy {torch.cat(right).mean().item():.3f} of {len(torch.cat(right))}")

    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    digest = hashlib.sha256()
    for tensor in state.values():
        digest.update(tensor.cpu().numpy().tobytes())
    digest.update(repr(losses).encode())
    print(f"digest rank {accelerator.process_index} {digest.hexdigest()}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
