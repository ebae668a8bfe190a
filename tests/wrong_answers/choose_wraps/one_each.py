# wrong: a unit for each block
# told: Each block is a unit of its own


def choose_wraps(sizes, limit):
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
    return [[block] for block in range(len(sizes))]
