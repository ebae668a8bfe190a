# drop_last with a batch larger than the rank's share: the loader is empty and nothing is trained
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(100, 5, generator=g)
    dataset = TensorDataset(x, x.sum(1, keepdim=True).sign())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(  # <- here
        dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True
    )
    model = DDP(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:  # <- here
            optimizer.zero_grad()
            nn.functional.soft_margin_loss(model(x), y).backward()
            optimizer.step()  # <- here
        if rank == 0:
            print(f"finished epoch {epoch}")
    if rank == 0:
        print("training done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
