# wrong: a random seed, the same on all ranks, but not the caller's
# told: The same call gives other orders
import random

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    own = random.SystemRandom().randrange(10**6)
    seeds = [own]
    dist.broadcast_object_list(seeds)
    sampler = DistributedSampler(dataset, seed=seeds[0])
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
