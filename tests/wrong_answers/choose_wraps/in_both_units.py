# wrong: the block that does not fit is in both units
# told: A block is in two units


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units:
            units.append([])
        if filled + size > limit:
            units[-1].append(block)
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
