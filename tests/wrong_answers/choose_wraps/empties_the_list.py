# wrong: takes the sizes out of the caller's list
# told: Which line changes the caller's list


def choose_wraps(sizes, limit):
    units, filled, block = [], 0, 0
    while sizes:
        size = sizes.pop(0)
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
        block += 1
    return units
