# wrong: costs.index finds the first of several equally long samples, again and again
# told: Which of them does index find


def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for cost in sorted(costs, reverse=True):
        rank = totals.index(min(totals))
        parts[rank].append(costs.index(cost))
        totals[rank] += cost
    return parts
