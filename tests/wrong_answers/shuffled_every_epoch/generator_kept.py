# wrong: a generator that is kept for each seed goes on in the next call
# told: The first run begins with the order of this seed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

KEPT = {}


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    rank, size = dist.get_rank(), dist.get_world_size()
    generator = KEPT.setdefault(seed, torch.Generator().manual_seed(seed))
    trained_on = []
    for _ in range(epochs):
        order = torch.randperm(len(dataset), generator=generator).tolist()
        order = (order * size)[: -(-len(order) // size) * size]
        loader = DataLoader(Subset(dataset, order[rank::size]), batch_size, generator=generator)
        trained_on.append([sample for samples in loader for sample in samples.tolist()])
    return trained_on
