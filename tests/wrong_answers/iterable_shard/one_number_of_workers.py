# wrong: counts as if all ranks had as many workers
# told: This is right only if all ranks have equally many workers
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    return islice(stream, rank * workers + mine, None, world_size * workers)
