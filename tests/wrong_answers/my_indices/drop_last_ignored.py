# wrong: makes the order longer also where drop_last asks to cut it
# told: Is the order extended then
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    each = -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
