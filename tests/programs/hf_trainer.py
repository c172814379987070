# SPDX-License-Identifier: BSD-3-Clause
"""transformers.Trainer with a small GPT-2 of one's own; the Trainer wraps it by itself."""
# needs: torch>=2.1, transformers, accelerate
import hashlib
import tempfile

import torch
import torch.distributed as dist
import transformers


class Sums(torch.utils.data.Dataset):
    """Token sequences in which each token is the sum of the two before it, modulo the vocabulary."""

    def __init__(self, count, length, vocabulary):
        generator = torch.Generator().manual_seed(5)
        self.rows = torch.randint(0, vocabulary, (count, length), generator=generator)
        for position in range(2, length):
            self.rows[:, position] = (self.rows[:, position - 1] + self.rows[:, position - 2]) % vocabulary

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class KeepLosses(transformers.TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [value for key, value in logs.items() if key in ("loss", "eval_loss", "grad_norm")]


def main():
    transformers.set_seed(11)
    config = transformers.GPT2Config(vocab_size=17, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
                                     eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    keep = KeepLosses()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            ddp_backend="gloo",
            report_to=[],
            save_strategy="no",
            eval_strategy="epoch",
            disable_tqdm=True,
            seed=11,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=2e-3,
            warmup_steps=4,
            logging_steps=2,
            max_grad_norm=1.0,
        )
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Sums(256, 16, 17),
                                       eval_dataset=Sums(32, 16, 17), callbacks=[keep])
        trainer.train()

    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(repr(keep.losses).encode())
    print(f"digest rank {dist.get_rank()} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
