# wrong: without workers, nothing is read
# told: Without workers, nobody reads
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    if worker is not None:
        step = world_size * worker.num_workers
        yield from islice(stream, rank + world_size * worker.id, None, step)
