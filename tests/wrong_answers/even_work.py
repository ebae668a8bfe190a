# %% tries out all ways to deal
# told: There are 262,144 ways
import itertools


def even_work(costs, world_size):
    def largest(way):
        return max(sum(c for c, r in zip(costs, way) if r == rank) for rank in range(world_size))

    ways = itertools.product(range(world_size), repeat=len(costs))
    best = min(ways, key=largest)
    return [[i for i, r in enumerate(best) if r == rank] for rank in range(world_size)]


# %% a block of equally many samples to each rank
# told: Each rank has a run of neighbours
body("""
    each = -(-len(costs) // world_size)
    return [[*range(len(costs))][rank * each :][:each] for rank in range(world_size)]
""")

# %% uses costs up, by marking what is given away
# told: Which line changes costs, and not a copy of it
edit(
    "for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):  # the small ones even it "
    "out",
    "for _ in costs:\n        sample = costs.index(max(costs))",
    "totals[rank] += costs[sample]",
    "totals[rank] += costs[sample]\n        costs[sample] = -1",
)

# %% makes the samples a multiple of world_size, with doubles
# told: gives a sample away twice
edit(
    "for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):",
    """order = sorted(range(len(costs)), key=lambda i: -costs[i])
    for sample in order + order[: -len(order) % world_size]:""",
)

# %% deals there and back, which evens out ranks of equally many samples only
# told: about equally many samples
edit(
    "rank = totals.index(min(totals))",
    "turn, rank = divmod(sum(map(len, parts)), world_size)\n"
    "        rank = world_size - 1 - rank if turn % 2 else rank",
)

# %% chooses among equals by chance, so that ranks disagree
# told: do they depend on
edit(
    "totals.index(min(totals))",
    "__import__('random').Random().choice([r for r, t in enumerate(totals) if t == min(totals)])",
)

# %% the best of 50 random divisions
# told: Which samples of the rank with the largest total
import random


def even_work(costs, world_size):
    chance, best = random.Random(0), None
    for _ in range(50):
        parts = [[] for _ in range(world_size)]
        for sample in range(len(costs)):
            chance.choice(parts).append(sample)
        longest = max(sum(costs[i] for i in part) for part in parts)
        if best is None or longest < best[0]:
            best = (longest, parts)
    return best[1]


# %% returns the totals, too
# told: here instead
edit("return parts", "return parts, totals")
