# wrong: begins with a unit that stays empty where there are no blocks
# told: A unit without blocks is not a unit


def choose_wraps(sizes, limit):
    units, filled = [[]], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
