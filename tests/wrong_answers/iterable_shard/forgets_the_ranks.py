# wrong: shares among the workers alone, so that each sample comes once on every rank
# told: Every rank gets the whole stream
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    yield from islice(stream, mine, None, workers)
