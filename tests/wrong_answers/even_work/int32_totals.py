# wrong: large totals become negative in int32
# told: Which numbers does your dtype hold
import torch


def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], torch.zeros(world_size, dtype=torch.int32)
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = int(totals.argmin())
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
