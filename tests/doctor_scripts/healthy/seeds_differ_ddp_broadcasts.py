# detr's way: seed + rank, so dropout and augmentation differ, and DDP makes the weights equal
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Digits(Dataset):
    def __init__(self, n=192):
        g = torch.Generator().manual_seed(0)
        self.x = torch.rand(n, 1, 8, 8, generator=g)
        self.y = torch.randint(5, (n,), generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        return (x.flip(-1) if torch.rand(()) < 0.5 else x), self.y[i]


def main(args):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed + rank)
    dataset = Digits()
    sampler = DistributedSampler(dataset, seed=args.seed)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, 5)
    )
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"Epoch {epoch}: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=42)
    main(parser.parse_args())
