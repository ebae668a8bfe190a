# wrong: passes samples on only once there is one for every process
# told: Samples at the end are left out


def iterable_shard(stream, rank, world_size, worker):
    mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    dealt = []
    for sample in stream:
        dealt.append(sample)
        if len(dealt) == world_size * workers:
            yield dealt[rank + world_size * mine]
            dealt.clear()
