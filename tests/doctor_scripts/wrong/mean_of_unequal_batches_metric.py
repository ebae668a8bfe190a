# deit #24: the mean over ranks of means over unequal numbers of rows
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


@torch.no_grad()
def evaluate(model, loader):
    meter = AverageMeter()
    model.eval()
    for x, y in loader:
        meter.update(nn.functional.l1_loss(model.module(x), y).item(), len(x))
    mae = torch.tensor(meter.avg)
    dist.all_reduce(mae)  # <- here
    return mae.item() / dist.get_world_size()  # <- here


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(2)
    x = torch.randn(300, 6)
    full = TensorDataset(x, (x**2).sum(1, keepdim=True))
    train_set = Subset(full, range(240))
    val_set = Subset(full, list(range(240, 300))[: 24 + 5])
    mine = Subset(val_set, range(rank, len(val_set), world))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=12, sampler=sampler)
    val_loader = DataLoader(mine, batch_size=8)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        mae = evaluate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: val mae {mae:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
