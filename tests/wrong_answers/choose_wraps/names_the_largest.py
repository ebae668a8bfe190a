# wrong: the error names the largest block, not the first one
# told: Which one comes first


def choose_wraps(sizes, limit):
    if sizes and max(sizes) > limit:
        raise ValueError(f"block {sizes.index(max(sizes))} is too large")
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
