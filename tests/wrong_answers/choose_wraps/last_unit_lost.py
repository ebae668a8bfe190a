# wrong: adds a unit to the list only when the next one begins
# told: The last unit is missing


def choose_wraps(sizes, limit):
    units, unit, filled = [], [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if filled + size > limit:
            units.append(unit)
            unit, filled = [], 0
        unit.append(block)
        filled += size
    return units
