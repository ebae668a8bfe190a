# pytorch #41329, CenterNet #233: worker_init_fn gives every worker of every rank one seed
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SEED = 42


def seed_worker(worker_id):
    np.random.seed(SEED)  # <- here
    random.seed(SEED)


class RandomCrops(Dataset):
    def __init__(self, n=64):
        self.signal = torch.sin(torch.arange(2000) * 0.05)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        start = index * 20 + np.random.randint(0, 500)  # <- here
        crop = self.signal[start : start + 16]
        return crop[:-1], crop[-1:]


def build(rank, world_size):
    dataset = RandomCrops()
    sampler = DistributedSampler(dataset, world_size, rank)
    loader = DataLoader(
        dataset,
        batch_size=4,
        sampler=sampler,
        num_workers=2,
        worker_init_fn=seed_worker,  # <- here
    )
    return loader, sampler


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    loader, sampler = build(dist.get_rank(), dist.get_world_size())
    model = DDP(nn.Sequential(nn.Linear(15, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {dist.get_rank()} epoch {epoch} loss {loss.item():.5f}")
    dist.destroy_process_group()
