# nerv #1: parameters are broadcast once, gradients are never averaged
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, TensorDataset

parser = argparse.ArgumentParser("slot model")
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--bs", default=16, type=int)
params = parser.parse_args()


def shard(dataset):
    """The rows of this rank."""
    mine = range(dist.get_rank(), len(dataset), dist.get_world_size())
    return Subset(dataset, list(mine))


def build_model():
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 4))
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    return model


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(256, 12, generator=g)
    dataset = TensorDataset(x, x[:, :4].argmax(1))
    torch.manual_seed(dist.get_rank())
    loader = DataLoader(shard(dataset), batch_size=params.bs, shuffle=True)
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(params.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()  # <- here
        dist.all_reduce(total := loss.detach().clone())
        if dist.get_rank() == 0:
            print(epoch, (total / dist.get_world_size()).item())
    dist.destroy_process_group()


main()
