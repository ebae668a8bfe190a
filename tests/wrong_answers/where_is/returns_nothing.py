# wrong: collects the places, and does not return them
# told: Does every path through the function return the list


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    for node, count in enumerate(gpus):
        for local in range(count):
            places.append((node, local))
