# SPDX-License-Identifier: BSD-3-Clause
"""The loop of the tutorials: a small CNN with batch normalization, DistributedSampler, SGD."""
import hashlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_dataset(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = torch.randn(count, 1, 12, 12, generator=generator)
    # The class is a brighter quadrant.
    for image, label in zip(images, labels):
        row, column = divmod(int(label), 2)
        image[:, row * 6:row * 6 + 6, column * 6:column * 6 + 6] += 1.0
    return TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 3 * 3, 4)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    dataset = make_dataset(256, seed=7)
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = Net()
    ddp_model = DDP(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        ddp_model.train()
        correct = torch.zeros(1)
        for images, labels in loader:
            optimizer.zero_grad()
            outputs = ddp_model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            correct += (outputs.argmax(1) == labels).sum()
        dist.all_reduce(correct)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {correct.item() / len(dataset):.3f}")

    model.eval()
    with torch.no_grad():
        images, labels = make_dataset(512, seed=8).tensors
        accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"rank {rank}: held-out accuracy {accuracy.item():.3f}")

    digest = hashlib.sha256()
    for tensor in [*model.state_dict().values(), loss, correct, accuracy]:
        digest.update(tensor.detach().numpy().tobytes())
    print(f"digest rank {rank} {digest.hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
