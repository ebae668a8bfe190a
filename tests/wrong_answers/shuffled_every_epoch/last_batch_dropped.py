# wrong: the loader drops the last batch where it is not full
# told: What drops samples
from torch.utils.data import DataLoader, DistributedSampler


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler, drop_last=True)
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
