# wrong: each entry also holds the rank
# told: The rank itself is the index


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    pairs = [(node, local) for node, count in enumerate(gpus) for local in range(count)]
    return [(rank, *pair) for rank, pair in enumerate(pairs)]
