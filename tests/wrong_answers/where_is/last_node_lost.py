# wrong: range stops one node early
# told: The last node is missing


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    for node in range(len(gpus) - 1):
        places += [(node, local) for local in range(gpus[node])]
    return places
