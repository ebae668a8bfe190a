# wrong: each rank has a set, not a list
# told: What are they in here
def even_work(costs, world_size):
    parts, totals = [set() for _ in range(world_size)], [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = totals.index(min(totals))
        parts[rank].add(sample)
        totals[rank] += costs[sample]
    return parts
