# wrong: takes a unit of exactly the limit for too large
# told: A unit may be exactly as large as the limit


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size >= limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
