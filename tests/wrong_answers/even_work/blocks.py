# wrong: a block of equally many samples to each rank
# told: Each rank has a run of neighbours


def even_work(costs, world_size):
    each = -(-len(costs) // world_size)
    samples = list(range(len(costs)))
    return [samples[rank * each : (rank + 1) * each] for rank in range(world_size)]
