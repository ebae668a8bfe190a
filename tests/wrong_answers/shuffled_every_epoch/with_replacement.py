# wrong: draws each place of the order anew, so that a sample may be drawn again
# told: What draws them
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    rank, size = dist.get_rank(), dist.get_world_size()
    share = -(-len(dataset) // size)
    trained_on = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randint(len(dataset), (share * size,), generator=generator).tolist()
        trained_on.append([])
        for samples in DataLoader(
            Subset(dataset, order[rank::size]), batch_size, generator=generator
        ):
            trained_on[epoch] += samples.tolist()
    return trained_on
