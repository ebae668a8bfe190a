# wrong: every rank deals itself the cards of rank 0
# told: What tells the sampler which rank it is
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, dist.get_world_size(), 0, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler, generator=torch.Generator())
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
