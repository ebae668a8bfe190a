# without a DistributedSampler: each rank takes every n-th number of one shuffled list, and shuffles
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    g = torch.Generator().manual_seed(6)
    x, noise = torch.randn(2, 112, 4, generator=g)
    order = torch.randperm(112, generator=torch.Generator().manual_seed(0))
    own = order[rank::world]
    share = TensorDataset(x[own], (x + 0.1 * noise)[own])
    loader = DataLoader(share, batch_size=7, shuffle=True)
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for _ in range(2):
        for a, b in loader:
            optimizer.zero_grad()
            (model(a) - b).square().sum(1).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
