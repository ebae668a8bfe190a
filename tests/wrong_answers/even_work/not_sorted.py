# wrong: each sample to the rank with least, but in the order in which they come
# told: You give them away by their numbers


def even_work(costs, world_size):
    parts = [[] for _ in range(world_size)]
    totals = [0] * world_size
    for sample, cost in enumerate(costs):
        rank = min(range(world_size), key=totals.__getitem__)
        parts[rank].append(sample)
        totals[rank] += cost
    return parts
