"""Two optimizers in turn on each batch, the second on a model that was just updated; noise drawn in the loop by each rank."""
# command: parity
# also: DDP208
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    generator = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)))
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))
    wrapped_critic = DDP(critic)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    real = TensorDataset(torch.randn(96, 8) + 2)
    judge = nn.BCEWithLogitsLoss()
    torch.manual_seed(10 + dist.get_rank())
    for (batch,) in DataLoader(real, batch_size=6, sampler=DistributedSampler(real)):
        count = len(batch)
        fake = generator(torch.randn(count, 4))
        scores = wrapped_critic(torch.cat([batch, fake.detach()])).squeeze(1)
        loss = judge(scores, torch.cat([torch.ones(count), torch.zeros(count)]))
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        critic.requires_grad_(False)
        loss = judge(critic(fake).squeeze(1), torch.ones(count))
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
        critic.requires_grad_(True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
