# stochastic depth: in some steps a block is left out, so find_unused_parameters is needed
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class StochasticDepth(nn.Module):
    def __init__(self, dim=12, depth=4, drop=0.5):
        super().__init__()
        self.inp = nn.Linear(3, dim)
        self.blocks = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1)
        self.drop = drop
        self.coin = random.Random()

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            if self.training and self.coin.random() < self.drop:
                continue
            h = h + torch.relu(block(h))
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    g = torch.Generator().manual_seed(0)
    x = torch.randn(320, 3, generator=g)
    dataset = TensorDataset(x, x.norm(dim=1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    net = StochasticDepth()
    net.coin.seed(dist.get_rank())
    model = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
