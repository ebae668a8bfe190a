# wrong: sorted the wrong way round
# told: away the shortest first


def even_work(costs, world_size):
    parts = [[] for _ in range(world_size)]
    totals = [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: costs[i]):
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
