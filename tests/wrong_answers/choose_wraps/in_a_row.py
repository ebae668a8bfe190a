# wrong: returns where units begin
# told: Where does a unit end?


def choose_wraps(sizes, limit):
    units, filled = [], 0
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
        if not units or filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return [unit[0] for unit in units]
