# wrong: ends when all that is left costs nothing
# told: Samples that cost 0 are missing


def even_work(costs, world_size):
    left, parts, totals = costs.copy(), [[] for _ in range(world_size)], [0] * world_size
    while any(left):
        sample, rank = left.index(max(left)), totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += costs[sample]
        left[sample] = 0
    return parts
