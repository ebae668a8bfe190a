# wrong: a new unit begins with size 0, although a block is in it
# told: Does the first block of a unit count


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size > limit:
            units.append([block])
            filled = 0
        else:
            units[-1].append(block)
            filled += size
    return units
