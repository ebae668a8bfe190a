# wrong: goes on counting where the local rank begins again
# told: These are ranks, not local ranks


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    for node, count in enumerate(gpus):
        for _ in range(count):
            places.append((node, len(places)))
    return places
