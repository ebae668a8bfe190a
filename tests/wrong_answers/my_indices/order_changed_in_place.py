# wrong: keeps the order, and makes it longer in place
# told: Made first, this call is right
import functools

import torch


@functools.cache
def order_of(n, shuffle, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator).tolist() if shuffle else list(range(n))


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = order_of(n, shuffle, seed + epoch)
    if n:
        order += [order[place % n] for place in range(-len(order) % world_size)]
    total = n // world_size * world_size if drop_last else len(order)
    return order[rank:total:world_size]
