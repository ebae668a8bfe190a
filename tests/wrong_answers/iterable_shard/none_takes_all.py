# wrong: without workers, it forgets that there are ranks
# told: Without workers, the rank gets the whole stream
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    if worker is None:
        return stream
    step = world_size * worker.num_workers
    return islice(stream, rank + world_size * worker.id, None, step)
