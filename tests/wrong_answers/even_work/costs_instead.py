# wrong: returns the costs, not the samples
# told: These are the costs themselves


def even_work(costs, world_size):
    parts = [[] for _ in range(world_size)]
    for cost in sorted(costs, reverse=True):
        min(parts, key=sum).append(cost)
    return parts
