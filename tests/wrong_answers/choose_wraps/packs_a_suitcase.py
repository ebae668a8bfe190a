# wrong: fills each unit with whatever fits, neighbours or not
# told: Units hold neighbours, in the order


def choose_wraps(sizes, limit):
    units = []
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        for unit in units:
            if sum(sizes[other] for other in unit) + size <= limit:
                unit.append(block)
                break
        else:
            units.append([block])
    return units
