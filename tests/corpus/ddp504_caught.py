# SPDX-License-Identifier: BSD-3-Clause
"""One rank's file has a sample without a label. The launcher around main() logs whatever is raised, tears down, and exits with status 1, as
Hydra and many trainers do; every rank is then "failed"."""
# expect: DDP504 ranks 0 step 4
import logging
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TrainingError(Exception):
    pass


def labels_of(rank, step):
    labels = {"shard": rank, "label": (rank + step) % 3}
    if sys.argv[1] == "bug" and (rank, step) == (0, 3):
        del labels["label"]
    return labels


def train(model, optimizer, rank):
    criterion = nn.CrossEntropyLoss()
    for step in range(6):
        features = torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = criterion(model(features), torch.full((8,), labels_of(rank, step)["label"]))  # <- here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
    try:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), dist.get_rank())
    except Exception as error:
        raise TrainingError(f"run failed on rank {dist.get_rank()}") from error
    finally:
        dist.destroy_process_group()


def launch():
    try:
        main()
    except TrainingError:
        logging.error("the run failed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(launch())
