# KAIR #106, pytorch #31771: every epoch has the order of epoch 0
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def build_dataset():
    g = torch.Generator().manual_seed(3)
    images = torch.randn(240, 1, 8, 8, generator=g)
    labels = (images.mean(dim=(1, 2, 3)) > 0).long()
    return TensorDataset(images, labels)


def main(rank, world_size, args):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(100 + rank)
    dataset = build_dataset()
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))
    model = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        for step, (images, labels) in enumerate(loader):  # <- here
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 5 == 0:
                print(f"[{epoch}][{step}/{len(loader)}] loss={loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), parser.parse_args())
