# wrong: without a sampler every rank shuffles and trains on all
# told: Each rank has all samples. What deals
# right at: 1
import torch
from torch.utils.data import DataLoader


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(dataset, batch_size, shuffle=True, generator=generator)
    trained_on = []
    for epoch in range(epochs):
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
