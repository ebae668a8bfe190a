# wrong: counts nodes and local ranks from 1
# told: Both are counted from 1


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [(node, local) for node, count in enumerate(gpus, 1) for local in range(1, count + 1)]
