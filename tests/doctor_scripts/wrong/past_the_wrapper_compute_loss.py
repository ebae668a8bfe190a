# minimind #853, RAE #40: the loss is computed through .module
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self, dim=24, hidden=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh())
        self.decoder = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def compute_loss(self, x):
        return ((self(x) - x) ** 2).mean()


def unwrap(model):
    return model.module if isinstance(model, DistributedDataParallel) else model


def train(args_epochs=2):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    data = TensorDataset(torch.randn(320, 24))
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args_epochs):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = unwrap(model).compute_loss(batch)  # <- here
            loss.backward()
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "loss", round(loss.item(), 4))
    if int(os.environ["RANK"]) == 0:
        torch.save(unwrap(model).state_dict(), "/tmp/planted_autoencoder.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
