# wrong: finds the node by its number of GPUs
# told: are taken for one node


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    for count in gpus:
        places += [(gpus.index(count), local) for local in range(count)]
    return places
