# wrong: reads a whole round before it passes its own sample on
# told: on rank 0, 9 samples
# told: What does the first sample wait for?
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    one, count = (worker.id, worker.num_workers) if worker else (0, 1)
    place = rank + world_size * one
    while cards := list(islice(stream, world_size * count)):
        if place < len(cards):
            yield cards[place]
