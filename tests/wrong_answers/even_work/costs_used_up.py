# wrong: uses costs up, by marking what is given away
# told: Which line changes costs, and not a copy of it


def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for _ in costs:
        sample = costs.index(max(costs))
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += costs[sample]
        costs[sample] = -1
    return parts
