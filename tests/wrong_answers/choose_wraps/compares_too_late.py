# wrong: begins a unit when the one before is above the limit
# told: before or after the block is added


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
