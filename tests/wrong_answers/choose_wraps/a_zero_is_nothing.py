# wrong: leaves out blocks of size 0
# told: Blocks of size 0 are missing


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if not size:
            continue
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
