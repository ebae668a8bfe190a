# wrong: asks a stream for its length
# told: A stream has no length


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    each = len(stream) // (world_size * workers)
    for place, sample in enumerate(stream):
        if place // each == rank * workers + mine:
            yield sample
