# wrong: hopes that chance makes it even, with the generator that belongs to all
# told: it changed the state of Python's random
import random


def even_work(costs, world_size):
    samples = list(range(len(costs)))
    random.shuffle(samples)
    return [samples[rank::world_size] for rank in range(world_size)]
