# wrong: chooses among equals by chance, so that ranks disagree
# told: do they depend on
import random


def even_work(costs, world_size):
    chance = random.Random()
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        least = min(totals)
        rank = chance.choice([r for r in range(world_size) if totals[r] == least])
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
