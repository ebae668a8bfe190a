# wrong: remembers the places by the identity of a list that changes
# told: keep from one call to the next
known = {}


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    if id(gpus) not in known:
        known[id(gpus)] = [(node, local) for node, n in enumerate(gpus) for local in range(n)]
    return known[id(gpus)]
