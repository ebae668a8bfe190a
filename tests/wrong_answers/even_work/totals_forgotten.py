# wrong: never adds to the totals, so rank 0 has least for ever
# told: All the work is on one rank


def even_work(costs, world_size):
    parts = [[] for _ in range(world_size)]
    totals = [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = totals.index(min(totals))
        parts[rank].append(sample)
    return parts
