# pytorch #13711, timm #110: running statistics of each rank's own rows, and buffers not broadcast
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class RunningNorm(nn.Module):
    """Normalises its input by statistics that follow the data."""

    def __init__(self, dim, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(0), self.momentum)  # <- here
            self.var.lerp_(x.var(0), self.momentum)
        return (x - self.mean) / (self.var + 1e-5).sqrt()


def main(rank):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(256, 6) * 4 + 2
    dataset = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = nn.Sequential(RunningNorm(6), nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    model = DDP(model, broadcast_buffers=False)  # <- here
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "/tmp/planted_buffers.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]))
