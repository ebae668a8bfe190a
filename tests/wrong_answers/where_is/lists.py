# wrong: a place is a list, which is not equal to a tuple
# told: find the tuple (node, local rank) among them


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [[node, local] for node, count in enumerate(gpus) for local in range(count)]
