# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer steps where the number of the batch is divisible: after one batch at first, and after four later on."""
# command: parity
# verdict: inconclusive
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ACCUMULATE = 4

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 8), torch.randn(256, 2))
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (inputs, targets) in enumerate(DataLoader(data, batch_size=8, sampler=DistributedSampler(data))):
    (nn.functional.mse_loss(model(inputs), targets) / ACCUMULATE).backward()
    if number % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
