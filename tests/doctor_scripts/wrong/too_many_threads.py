# pytorch #22260: every rank takes all cores for itself
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(max(2, os.cpu_count()))  # <- here


class Config:
    width = 64
    depth = 3
    batch = 32
    steps_per_epoch = 6
    epochs = 2


def build(cfg):
    layers = [nn.Linear(8, cfg.width), nn.ReLU()]
    for _ in range(cfg.depth - 1):
        layers += [nn.Linear(cfg.width, cfg.width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(cfg.width, 1))


def batches(cfg, epoch, rank):
    g = torch.Generator().manual_seed(1000 * epoch + rank)
    for _ in range(cfg.steps_per_epoch):
        x = torch.randn(cfg.batch, 8, generator=g)
        yield x, (x.abs().sum(1, keepdim=True) - 6)


def main(cfg):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(build(cfg))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(cfg.epochs):
        for x, y in batches(cfg, epoch, rank):
            optimizer.zero_grad()
            loss = nn.functional.huber_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} threads {torch.get_num_threads()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
