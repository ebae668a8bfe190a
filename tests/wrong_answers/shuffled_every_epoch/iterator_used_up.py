# wrong: asks the loader once for its batches, and the first epoch uses them up
# told: Does the loop over the batches run in this epoch
import torch
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler, generator=torch.Generator())
    batches = iter(loader)
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in batches:
            trained_on[epoch] += samples.tolist()
    return trained_on
