# wrong: fills up the last round, so that all processes get equally many
# told: Which samples come more than once, and which nowhere
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    place = rank + world_size * mine
    while dealt := list(islice(stream, world_size * workers)):
        yield (dealt * world_size * workers)[place]
