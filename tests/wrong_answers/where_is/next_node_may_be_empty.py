# wrong: goes on by one node only when one is full
# told: A rank is on a node without GPUs


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    places, node, local = [], 0, 0
    for _ in range(sum(gpus)):
        if local == gpus[node]:
            node, local = node + 1, 0
        places.append((node, local))
        local += 1
    return places
