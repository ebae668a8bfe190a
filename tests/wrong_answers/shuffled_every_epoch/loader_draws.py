# wrong: the right samples, but the loader draws from torch's own generator
# told: Which argument gives the loader another one
# told: the right samples; but the state
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
