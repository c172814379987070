# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed, ZeRO 2: every rank shuffles the whole data with the same seed, as the DataLoader is the program's own and has no sampler."""
# needs: deepspeed
# expect: DDP401 ranks 0 1 step 1
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or it compiles C++ when it starts
CONFIG = {
    "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True, "steps_per_print": 1000,
}


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(7)
    x = torch.randn(448, 12)
    data = TensorDataset(x, (x[:, :4].sum(1) > 0).long())
    if sys.argv[1] == "fixed":
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    else:
        loader = DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 2))
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2), config=CONFIG)
    for epoch in range(1 if sys.argv[1] == "bug" else 2):
        if sys.argv[1] == "fixed":
            loader.sampler.set_epoch(epoch)
        for batch, labels in loader:
            loss = nn.functional.cross_entropy(engine(batch.bfloat16()).float(), labels)
            engine.backward(loss)
            engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
