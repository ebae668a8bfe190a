# wrong: asks None for its id
# told: With num_workers=0 the rank itself reads
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    step = world_size * worker.num_workers
    yield from islice(stream, rank + world_size * worker.id, None, step)
