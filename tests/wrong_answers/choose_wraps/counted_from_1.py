# wrong: numbers the blocks from 1
# told: The blocks are counted from 1


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes, start=1):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
