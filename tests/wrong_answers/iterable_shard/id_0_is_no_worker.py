# wrong: asks whether the id is true, which 0 is not
# told: Which line treats id 0 as no worker
def iterable_shard(stream, rank, world_size, worker):
    workers, mine = (worker.num_workers, worker.id) if worker and worker.id else (1, 0)
    for place, sample in enumerate(stream):
        turn, owner = divmod(place, world_size)
        if owner == rank and turn % workers == mine:
            yield sample
