# wrong: asks for the largest of no blocks
# told: so no largest block


def choose_wraps(sizes, limit):
    if max(sizes) > limit:
        first = next(block for block, size in enumerate(sizes) if size > limit)
        raise ValueError(f"block {first} is too large")
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
