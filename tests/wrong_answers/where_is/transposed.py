# wrong: the local rank comes first in the pair
# told: This is (local rank, node)


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [(local, node) for node, count in enumerate(gpus) for local in range(count)]
