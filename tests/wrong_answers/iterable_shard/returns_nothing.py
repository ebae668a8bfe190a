# wrong: makes an iterator, and does not return it
# told: on every path
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    islice(stream, rank + world_size * mine, None, world_size * workers)
