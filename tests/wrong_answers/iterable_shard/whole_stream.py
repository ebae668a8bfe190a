# wrong: nobody passes over anything
# told: Every process gets the whole stream


def iterable_shard(stream, rank, world_size, worker):
    yield from stream
