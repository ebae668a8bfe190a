# wrong: closes a unit as long as nothing is in it
# told: Blocks without parameters need no unit


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not filled or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
