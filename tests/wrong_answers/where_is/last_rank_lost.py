# wrong: counts to the world size without the last rank
# told: The last rank is missing


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    for node in range(len(gpus)):
        for local in range(gpus[node]):
            places.append((node, local))
    return places[: sum(gpus) - 1]
