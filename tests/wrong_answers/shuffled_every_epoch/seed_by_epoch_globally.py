# wrong: seeds the whole process in each epoch
# told: it changed the seed of torch
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    rank, size = dist.get_rank(), dist.get_world_size()
    trained_on = []
    for epoch in range(epochs):
        torch.manual_seed(seed + epoch)
        order = torch.randperm(len(dataset)).tolist()
        order += order[: -len(order) % size]
        trained_on.append([])
        for samples in DataLoader(Subset(dataset, order[rank::size]), batch_size):
            trained_on[epoch] += samples.tolist()
    return trained_on
