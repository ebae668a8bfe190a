# wrong: yields the places of the samples
# told: These are places of the stream
from itertools import count


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    places = count()
    for place, _ in zip(places, stream, strict=False):
        if place % world_size == rank and place // world_size % workers == mine:
            yield place
