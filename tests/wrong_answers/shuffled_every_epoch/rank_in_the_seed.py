# wrong: leaves the rank in the seed, so that ranks deal from orders of their own
# told: Do all ranks deal from the same order
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, seed=seed + dist.get_rank())
    loader = DataLoader(dataset, batch_size, sampler=sampler, generator=torch.Generator())
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
