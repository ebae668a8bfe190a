# wrong: fills one rank after the other, up to the mean, and the last one with what is left
# told: Which samples of the rank with the largest total


def even_work(costs, world_size):
    mean = sum(costs) / world_size
    parts = [[] for _ in range(world_size)]
    rank, total = 0, 0
    for sample in sorted(range(len(costs)), key=lambda i: costs[i]):
        if total + costs[sample] > mean and rank < world_size - 1:
            rank, total = rank + 1, 0
        parts[rank].append(sample)
        total += costs[sample]
    return parts
