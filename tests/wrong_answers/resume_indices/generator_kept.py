# wrong: keeps the generator of an epoch, which gives another order the second time
# told: Made first, this call is right
# told: left: [3, 13, 20
import functools

import torch


@functools.cache
def seeded(number):
    return torch.Generator().manual_seed(number)


def resume_indices(n, epoch, seed, done, rank, world_size):
    order = torch.randperm(n, generator=seeded(seed + epoch))
    return order[done + rank :: world_size].tolist()
