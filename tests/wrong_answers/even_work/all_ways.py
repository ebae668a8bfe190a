# wrong: tries out all ways to deal
# told: There are 262,144 ways
import itertools


def even_work(costs, world_size):
    def largest(way):
        return max(sum(c for c, r in zip(costs, way) if r == rank) for rank in range(world_size))

    ways = itertools.product(range(world_size), repeat=len(costs))
    best = min(ways, key=largest)
    return [[i for i, r in enumerate(best) if r == rank] for rank in range(world_size)]
