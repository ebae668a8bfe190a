# pytorch #20611, #54059: rank 0 alone calls the DDP model, which broadcasts buffers; hangs
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 8, 8, generator=g)
    return TensorDataset(x, (x[:, 0, :4].sum((1, 2)) > 0).long())


def make_model():
    conv = nn.Conv2d(1, 6, 3, padding=1)
    return nn.Sequential(
        conv, nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 2)
    )


def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()  # <- here
    model.train()
    return correct / len(loader.dataset)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    train_set = make_data(256, 0)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    test_loader = DataLoader(make_data(64, 1), batch_size=32)
    model = DDP(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: accuracy {evaluate(model, test_loader):.3f}")  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
