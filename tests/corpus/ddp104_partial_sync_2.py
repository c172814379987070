# SPDX-License-Identifier: BSD-3-Clause
"""Gradients are averaged in flat buckets of one's own; what is left in the last bucket is never sent."""
# expect: DDP104 ranks 0 1 step 1 parameters body.bias classifier.*
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class BucketedReducer:
    def __init__(self, parameters, bucket_elements=1000):
        self.parameters, self.bucket_elements = list(parameters), bucket_elements

    def reduce(self, bucket):
        flat = _flatten_dense_tensors(bucket)
        dist.all_reduce(flat)  # <- here
        flat /= dist.get_world_size()
        for gradient, averaged in zip(bucket, _unflatten_dense_tensors(flat, bucket)):
            gradient.copy_(averaged)

    def synchronize(self, flush):
        bucket, size = [], 0
        for parameter in self.parameters:
            bucket.append(parameter.grad)
            size += parameter.numel()
            if size >= self.bucket_elements:
                self.reduce(bucket)
                bucket, size = [], 0
        if bucket and flush:
            self.reduce(bucket)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(20, 50)
        self.body = nn.Linear(50, 50)
        self.classifier = nn.Linear(50, 4)

    def forward(self, x):
        return self.classifier(torch.relu(self.body(torch.relu(self.stem(x)))))


dist.init_process_group("gloo")
torch.manual_seed(21)
net = Net()
reducer = BucketedReducer(net.parameters(), bucket_elements=1000)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(dist.get_rank())
for iteration in range(8):
    x = torch.randn(24, 20, generator=generator)
    loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    reducer.synchronize(flush=sys.argv[1] == "fixed")
    optimizer.step()
print(f"rank {dist.get_rank()} loss {loss.item():.4f}")
dist.destroy_process_group()
