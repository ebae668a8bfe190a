# wrong: returns the totals, too
# told: What else is in these lists
def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts, totals
