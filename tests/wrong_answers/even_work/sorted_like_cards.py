# wrong: the longest first, but then every world_size-th
# told: Sorted, then dealt like cards


def even_work(costs, world_size):
    order = sorted(range(len(costs)), key=lambda i: costs[i], reverse=True)
    return [order[rank::world_size] for rank in range(world_size)]
