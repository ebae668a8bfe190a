# wrong: moves on to the next node after the first process there, so an empty one gets a rank
# told: A node without GPUs was given a rank


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places = []
    for node, count in enumerate(gpus):
        local = 0
        while True:
            places.append((node, local))
            local += 1
            if local >= count:
                break
    return places
