# wrong: gives each worker a block of its rank's samples, for which all must be read
# told: Each worker has a block of its rank's samples


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    own = list(stream)[rank::world_size]
    each = -(-len(own) // workers)
    yield from own[mine * each : (mine + 1) * each]
