# wrong: takes a sample that is None for the end of the stream
# told: A sample may be None
def iterable_shard(stream, rank, world_size, worker):
    one, count = (worker.id, worker.num_workers) if worker else (0, 1)
    place = 0
    while (sample := next(stream, None)) is not None:
        if place % (world_size * count) == rank + world_size * one:
            yield sample
        place += 1
