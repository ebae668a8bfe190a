# wrong: takes the GPUs out of the caller's list
# told: Which line changes the caller's list


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places, node = [], 0
    while gpus:
        places += [(node, local) for local in range(gpus.pop(0))]
        node += 1
    return places
