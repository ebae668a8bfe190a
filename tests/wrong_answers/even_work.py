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
def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for _ in costs:
        sample = costs.index(max(costs))
        rank = totals.index(min(totals))
        parts[rank].append(sample)
        totals[rank] += costs[sample]
        costs[sample] = -1
    return parts


# %% large totals become negative in int32
# told: Which numbers does your dtype hold
import torch


def even_work(costs, world_size):
    parts, totals = [[] for _ in range(world_size)], torch.zeros(world_size, dtype=torch.int32)
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = int(totals.argmin())
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts


# %% makes the samples a multiple of world_size, with doubles
# told: Some samples come more than once
edit(
    "for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):",
    """order = sorted(range(len(costs)), key=lambda i: -costs[i])
    for sample in order + order[: -len(order) % world_size]:""",
)


# %% what does not divide by world_size is left out
# told: been left
edit("-costs[i])", "-costs[i])[: len(costs) // world_size * world_size]")


# %% hopes that chance makes it even, with the generator that belongs to all
# told: it changed the state of Python's random
import random


def even_work(costs, world_size):
    samples = list(range(len(costs)))
    random.shuffle(samples)
    return [samples[rank::world_size] for rank in range(world_size)]


# %% deals there and back, which evens out ranks of equally many samples only
# told: about equally many samples
def even_work(costs, world_size):
    order = sorted(range(len(costs)), key=lambda i: costs[i], reverse=True)
    parts = [[] for _ in range(world_size)]
    for place, sample in enumerate(order):
        turn, rank = divmod(place, world_size)
        parts[rank if turn % 2 == 0 else world_size - 1 - rank].append(sample)
    return parts


# %% chooses among equals by chance, so that ranks disagree
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


# %% a default value is made once, and keeps the totals of earlier calls
# told: Made first, this call is right
from collections import defaultdict


def even_work(costs, world_size, totals=defaultdict(int)):
    parts = [[] for _ in range(world_size)]
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = min(range(world_size), key=lambda r: totals[r])
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts


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


# %% a rank for each sample, not the samples of each rank
# told: Is this a rank for each sample
edit(
    "return parts",
    "return [next(r for r in range(world_size) if i in parts[r]) for i in range(len(costs))]",
)


# %% returns a dict from rank to samples
# told: This is a dict; a list is asked for
edit("[[] for _ in range(world_size)]", "{rank: [] for rank in range(world_size)}")


# %% ranks without samples have no list
# told: also one that gets no sample
edit("return parts", "return [part for part in parts if part]")


# %% each rank has a set, not a list
# told: What are they in here
edit("[[] for _ in range(world_size)]", "[set() for _ in range(world_size)]", "append(", "add(")


# %% returns the totals, too
# told: What else is in these lists
edit("return parts", "return parts, totals")


# %% counts the samples from 1
# told: Where do the other numbers come from
edit("append(sample)", "append(sample + 1)")


# %% never adds to the totals, so rank 0 always has the least
# told: All the work is on one rank
edit("totals[rank] += costs[sample]", "pass")
