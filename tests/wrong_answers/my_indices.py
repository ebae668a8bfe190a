# %% each rank draws what chance gives it
# told: The same call gives other samples the next time
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = torch.randperm(n).tolist() if shuffle else list(range(n))
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]


# %% seeds the generator that everybody else in the process uses, too
# told: it changed the seed of torch
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        torch.manual_seed(seed + epoch)
        order = torch.randperm(n).tolist()
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]


# %% repeats the order as often as it takes, and divides by n = 0 to know how often
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


# %% keeps the order, and makes it longer in place
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


# %% deals first, and shuffles what a rank has got
# told: Which of the rules comes first
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    each = n // world_size if drop_last else -(-n // world_size)
    own = [place % n for place in range(rank, each * world_size, world_size)]
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        own = [own[place] for place in torch.randperm(len(own), generator=generator)]
    return own


# %% fills up with -1, which is the index of no sample
# told: Where do the other numbers come from
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n - n % world_size]
    else:
        order += [-1] * (-n % world_size)
    return order[rank::world_size]


# %% shuffles with the same seed, but with Python's generator
# told: and does the task make it so
import random


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        random.Random(seed + epoch).shuffle(order)
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]


# %% adds what n is above a multiple, not what is missing to the next one
# told: How long must the order be before it is dealt
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    rest = n % world_size
    order = order[: n - rest] if drop_last else order + order[:rest]
    return order[rank::world_size]


# %% sorts what a rank has got
# told: In which order are they dealt
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)
    return sorted(order[place % n] for place in range(rank, each * world_size, world_size))


# %% a list of tensors with one number each
# told: a list with a tensor in it
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = torch.arange(n)
    if shuffle:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]


# %% with drop_last rounds to the nearest number, which can be the one above
# told: Does every rank get as many as it must
def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    each = round(n / world_size) if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]


# %% lets DistributedSampler do it
# told: a DistributedSampler is asked
from torch.utils.data import DistributedSampler


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    sampler = DistributedSampler(
        range(n), world_size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    return list(sampler)


# %% deals to the last rank first
# told: Each list is right, but on another rank
edit("dealt[rank::", "dealt[world_size - 1 - rank ::")


# %% each rank gets a block of the order instead of every world_size-th sample
# told: Each rank has a block of neighbours
edit("dealt[rank::world_size]", "dealt[rank * each : (rank + 1) * each]")
