# wrong: makes a list of the stream before the first sample is passed on
# told: 25 samples were taken
# told: What does the first sample wait for


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    return iter(list(stream)[rank::world_size][mine::workers])
