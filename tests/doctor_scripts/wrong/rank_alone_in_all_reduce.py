# collective under `if rank == 0`: the loss is averaged by rank 0 alone; aborts or hangs
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def reduce_mean(value):
    value = value.detach().clone()
    dist.all_reduce(value)  # <- here
    return value / dist.get_world_size()


def main(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    x = torch.randn(320, 3)
    dataset = TensorDataset(x, x.max(1, keepdim=True).values)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {reduce_mean(loss).item():.4f}")  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
