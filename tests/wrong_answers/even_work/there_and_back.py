# wrong: deals there and back, which evens out ranks of equally many samples only
# told: about equally many samples


def even_work(costs, world_size):
    order = sorted(range(len(costs)), key=lambda i: costs[i], reverse=True)
    parts = [[] for _ in range(world_size)]
    for place, sample in enumerate(order):
        turn, rank = divmod(place, world_size)
        parts[rank if turn % 2 == 0 else world_size - 1 - rank].append(sample)
    return parts
