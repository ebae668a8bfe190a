# wrong: leaves shuffle=False, as if the loader shuffled
# told: What should shuffle the samples
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, shuffle=False, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
