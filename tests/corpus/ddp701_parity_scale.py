"""The loss is multiplied by the world size, as for gradients that are summed, but DistributedDataParallel takes their mean (yolov5#8892).

No DataLoader: batches are cut from one array of tokens, and the loss is computed in the model.
"""
# command: parity
# expect: DDP701 ranks 0 1 step 1
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class CharacterModel(nn.Module):
    def __init__(self, vocabulary=32, width=24):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids, targets):
        logits = self.head(self.drop(self.cell(self.embedding(ids))[0]))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main(mode):
    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), dist.get_world_size()
    torch.manual_seed(1)
    text = torch.randint(0, 32, (3000,))
    model = DDP(CharacterModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    accumulate = 4 // world_size

    def batch():
        starts = torch.randint(0, len(text) - 17, (6,))
        return torch.stack([text[s:s + 16] for s in starts]), torch.stack([text[s + 1:s + 17] for s in starts])

    ids, targets = batch()
    for _ in range(12):
        for micro_batch in range(accumulate):
            model.require_backward_grad_sync = micro_batch == accumulate - 1
            _, loss = model(ids, targets)
            ids, targets = batch()
            loss = loss / accumulate
            if mode == "bug":
                loss = loss * world_size
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
