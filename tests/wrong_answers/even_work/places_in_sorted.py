# wrong: the numbers are places in the sorted list
# told: in a sorted copy of it


def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for sample, cost in enumerate(sorted(costs, reverse=True)):
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += cost
    return parts
