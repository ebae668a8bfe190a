# wrong: tries all ways to cut the blocks
# told: How many ways are there to cut them
from itertools import product


def choose_wraps(sizes, limit):
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
    best = [[block] for block in range(len(sizes))]
    for cuts in product([False, True], repeat=max(0, len(sizes) - 1)):
        units = [[0]] if sizes else []
        for block, cut in enumerate(cuts, start=1):
            units += [[]] * cut
            units[-1] = [*units[-1], block]
        if len(units) < len(best) and all(sum(sizes[b] for b in u) <= limit for u in units):
            best = units
    return best
