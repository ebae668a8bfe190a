# wrong: keeps the order of an epoch, whatever the number of samples
# told: Made first, this call is right
# told: the calls before it were right
import torch

ORDERS = {}


def resume_indices(n, epoch, seed, done, rank, world_size):
    if (seed, epoch) not in ORDERS:
        generator = torch.Generator().manual_seed(seed + epoch)
        ORDERS[seed, epoch] = torch.randperm(n, generator=generator).tolist()
    return ORDERS[seed, epoch][done + rank :: world_size]
