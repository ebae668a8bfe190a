# wrong: nothing is added, so ranks have unequally many
# told: Which rank do the others wait for
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    rank, size = dist.get_rank(), dist.get_world_size()
    trained_on = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(len(dataset), generator=generator).tolist()
        trained_on.append([])
        mine = Subset(dataset, order[rank::size])
        for samples in DataLoader(mine, batch_size, generator=generator):
            trained_on[epoch] += samples.tolist()
    return trained_on
