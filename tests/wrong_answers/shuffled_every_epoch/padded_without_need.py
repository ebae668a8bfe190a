# wrong: adds a sample for each rank where the data set divides already
# told: Which samples come several times in a list
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    rank, size = dist.get_rank(), dist.get_world_size()
    trained_on = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(len(dataset), generator=generator).tolist()
        order += order[: size - len(order) % size]
        mine = Subset(dataset, order[rank::size])
        trained_on.append([])
        for samples in DataLoader(mine, batch_size, generator=generator):
            trained_on[epoch] += samples.tolist()
    return trained_on
