# wrong: decides by the sample, not by its place
# told: Samples are dealt by their values


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    for sample in stream:
        if sample % (world_size * workers) == rank + world_size * mine:
            yield sample
