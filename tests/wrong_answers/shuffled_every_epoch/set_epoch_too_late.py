# wrong: tells the epoch after the loop over its batches
# told: Only epochs 0 and 1 are alike
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    trained_on = []
    for epoch in range(epochs):
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
        sampler.set_epoch(epoch)
    return trained_on
