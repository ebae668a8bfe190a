# wrong: rounds the sizes down
# told: Add up the sizes of this unit's blocks


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if int(size) > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + int(size) > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += int(size)
    return units
