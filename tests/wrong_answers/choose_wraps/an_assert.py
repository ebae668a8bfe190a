# wrong: refuses the block with an assert
# told: Which kind of error


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        assert size <= limit, f"block {block} is too large"
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
