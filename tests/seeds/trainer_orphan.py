# SPDX-License-Identifier: BSD-3-Clause
"""A layer that forward never calls, trained by the Hugging Face Trainer (huggingface/transformers issue 45518).

usage: torchrun --nproc_per_node 2 trainer_orphan.py [default | find_unused | static_graph]
"""
import dataclasses
import sys
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.utils import ModelOutput

WIDTH = 32


@dataclasses.dataclass
class Regressed(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.orphan = nn.Linear(WIDTH, WIDTH)  # stands first, so that its parameters have the indices 0 and 1
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs=None, labels=None, **_):
        logits = self.head(inputs)
        loss = logits.sum() if labels is None else (logits - labels).pow(2).mean()
        return Regressed(loss=loss, logits=logits)


class Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, _):
        return {"inputs": torch.randn(WIDTH), "labels": torch.randn(WIDTH)}


class StaticGraphTrainer(Trainer):
    """For a Trainer without the ddp_static_graph argument: it hands the keywords for DistributedDataParallel to accelerate in
    _wrap_model at the latest, and accelerate reads them when it wraps."""

    def _wrap_model(self, *args, **kwargs):
        model = super()._wrap_model(*args, **kwargs)
        self.accelerator.ddp_handler.static_graph = True
        return model


def main(variant, output):
    trainer, asked = Trainer, {"ddp_find_unused_parameters": variant == "find_unused"}
    if variant == "static_graph":
        if any(field.name == "ddp_static_graph" for field in dataclasses.fields(TrainingArguments)):
            asked["ddp_static_graph"] = True
        else:
            trainer = StaticGraphTrainer
    args = TrainingArguments(
        output_dir=output, per_device_train_batch_size=2, max_steps=3, save_strategy="no", report_to=[], ddp_backend="gloo",
        use_cpu=True, disable_tqdm=True, **asked,
    )
    trainer(model=Regression(), args=args, train_dataset=Noise()).train()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else "default", folder)
