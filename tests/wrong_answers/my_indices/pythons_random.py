# wrong: shuffles with the same seed, but with Python's generator
# told: Another shuffle
import random


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        random.Random(seed + epoch).shuffle(order)
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
