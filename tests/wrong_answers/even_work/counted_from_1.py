# wrong: counts the samples from 1
# told: Where do the other numbers come from


def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    samples = enumerate(costs, start=1)
    for sample, cost in sorted(samples, key=lambda pair: pair[1], reverse=True):
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += cost
    return parts
