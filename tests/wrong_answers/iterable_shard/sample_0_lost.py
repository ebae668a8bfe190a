# wrong: passes over a sample that is 0, as if it were none
# told: Sample 0 is lost
from itertools import islice


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    for sample in islice(stream, rank + world_size * mine, None, world_size * workers):
        if sample:
            yield sample
