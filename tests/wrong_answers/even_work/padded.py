# wrong: makes the samples a multiple of world_size, with doubles
# told: Some samples come more than once


def even_work(costs, world_size):
    order = sorted(range(len(costs)), key=lambda i: -costs[i])
    order += order[: -len(order) % world_size]
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for sample in order:
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
