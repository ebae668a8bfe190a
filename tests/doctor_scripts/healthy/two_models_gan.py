# a GAN: two DDP models, two optimizers, each step trains one of them
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

bce = nn.BCEWithLogitsLoss()


def set_requires_grad(model, flag):
    for p in model.parameters():
        p.requires_grad_(flag)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(50 + rank)
    g = torch.Generator().manual_seed(0)
    real = torch.randn(256, 2, generator=g) * torch.tensor([1.0, 0.2]) + 2
    dataset = TensorDataset(real)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
    G = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
    D = DDP(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            fake = G(torch.randn(len(x), 4))
            both = D(torch.cat([x, fake.detach()]))
            labels = torch.cat([torch.ones(len(x), 1), torch.zeros(len(x), 1)])
            loss_d = bce(both, labels)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()

            set_requires_grad(D, False)
            loss_g = bce(D.module(fake), torch.ones(len(x), 1))
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            set_requires_grad(D, True)
        if rank == 0:
            print(f"epoch {epoch}: D {loss_d.item():.3f} G {loss_g.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
