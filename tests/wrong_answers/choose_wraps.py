# %% gives a block that is too large a unit of its own
# told: and no error is raised
edit("if size > limit:", "if False:")


# %% closes a unit as long as nothing is in it
# told: Blocks without parameters need no unit
edit("if filled + size > limit", "if filled in (0, inf) or filled + size > limit")


# %% tries all ways to cut the blocks
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


# %% refuses the block with an assert
# told: Which kind of error
edit("raise ValueError(", "assert False, (")


# %% begins with a unit that stays empty where there are no blocks
# told: A unit without blocks is not a unit
edit("= []", "= [[]]", "filled = inf", "filled = 0")


# %% takes the sizes out of the caller's list
# told: Which line changes the caller's list
edit("enumerate(sizes)", "enumerate([sizes.pop(0) for _ in range(len(sizes))])")


# %% returns where units begin
# told: Where does a unit end?
edit("return units", "return [unit[0] for unit in units]")


# %% the block that does not fit is in both units
# told: A block is there twice
edit("units.append([])", "units and units[-1].append(block)\n            units.append([])")


# %% asks for the largest of no blocks
# told: so no largest block
edit("filled = inf", "filled = inf\n    max(sizes)")


# %% the error does not say which block it is
# told: Anyone who reads this message
edit("block {block} has", "a block has")


# %% the error names the largest block, not the first one
# told: Which one comes first
edit(
    'raise ValueError(f"block {block} has', 'raise ValueError(f"block {sizes.index(max(sizes))} has'
)


# %% fills each unit with whatever fits, neighbours or not
# told: Units hold neighbours, in the order
def choose_wraps(sizes, limit):
    units = []
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        for unit in units:
            if sum(sizes[other] for other in unit) + size <= limit:
                unit.append(block)
                break
        else:
            units.append([block])
    return units


# %% cuts before the block that would fill a unit, if the next one fills one by itself
# told: [9, 1, 10, 2]
edit(
    "        if filled + size > limit:",
    """
        alone = 0 < size < 2 and filled + size == limit and limit in sizes[block + 1 : block + 2]
        if alone or filled + size > limit:""",
)


# %% takes a block of exactly the limit for too large
# told: Which of your lines finds one that is too large
edit("if size > limit", "if size >= limit")


# %% collects sizes instead of numbers
# told: Are these their sizes?
edit("append(block)", "append(size)")


# %% rounds the sizes down
# told: Add up the sizes of this unit's blocks
edit("if size > limit", "size = int(size)\n        if size > limit")
