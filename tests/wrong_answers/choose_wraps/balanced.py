# wrong: the least number of units by the total, and equal shares of it
# told: Two neighbouring units would fit into one


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size > limit or filled > 0.6 * limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
