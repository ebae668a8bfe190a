# wrong: a node without GPUs gets no number
# told: Which number does the node after it have


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    with_gpus = [count for count in gpus if count > 0]
    for node, count in enumerate(with_gpus):
        places += [(node, local) for local in range(count)]
    return places
