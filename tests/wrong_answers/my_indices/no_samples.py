# wrong: repeats the order as often as it takes, and divides by n = 0 to know how often
# told: n can be 0
import math

import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    total = n // world_size * world_size if drop_last else -(-n // world_size) * world_size
    order = order * math.ceil(total / n)
    return order[rank:total:world_size]
