# wrong: counts the nodes from 1
# told: The nodes are counted from 1


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [(node, local) for node, count in enumerate(gpus, start=1) for local in range(count)]
