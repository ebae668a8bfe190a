# wrong: makes one number of seed and epoch by multiplying, which is 0 in epoch 0
# told: How are seed and epoch combined
import torch
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler, generator=torch.Generator())
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch((seed + 1) * epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
