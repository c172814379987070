# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed, ZeRO 3: parameters are gathered for the forward and backward only, from partitions on all ranks; seeds differ per rank."""
# needs: deepspeed
import os

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from torch import nn

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or it compiles C++ when it starts
CONFIG = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 64}, "steps_per_print": 1000,
}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens):
        return self.head(self.block(self.words(tokens)))


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(dist.get_rank())
    model = Tagger()
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3), config=CONFIG)
    for step in range(20):
        tokens = torch.randint(40, (4, 9))
        loss = nn.functional.cross_entropy(engine(tokens).flatten(0, 1), (tokens % 5).flatten())
        engine.backward(loss)
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
