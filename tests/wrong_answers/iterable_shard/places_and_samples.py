# wrong: yields each sample together with its place
# told: What exactly does your function yield
def iterable_shard(stream, rank, world_size, worker):
    workers, mine = (worker.num_workers, worker.id) if worker else (1, 0)
    for pair in enumerate(stream):
        if pair[0] % (world_size * workers) == rank + world_size * mine:
            yield pair
