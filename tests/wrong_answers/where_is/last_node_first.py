# wrong: pop takes the nodes from the end of the list
# told: but their order is not


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    left, places = gpus.copy(), []
    while left:
        count = left.pop()
        places += [(len(left), local) for local in range(count)]
    return places
