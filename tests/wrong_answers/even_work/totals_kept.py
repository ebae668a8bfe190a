# wrong: a default value is made once, and keeps the totals of earlier calls
# told: Made first, this call is right
from collections import defaultdict


def even_work(costs, world_size, totals=defaultdict(int)):
    parts = [[] for _ in range(world_size)]
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = min(range(world_size), key=lambda r: totals[r])
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
