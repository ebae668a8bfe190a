# wrong: as many blocks in each unit as fit on average
# told: Units with equally many blocks need not be equally large


def choose_wraps(sizes, limit):
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} is too large")
    if not sum(sizes):
        return [list(range(len(sizes)))] if sizes else []
    each = max(1, int(limit / (sum(sizes) / len(sizes))))
    blocks = list(range(len(sizes)))
    return [blocks[start : start + each] for start in range(0, len(sizes), each)]
