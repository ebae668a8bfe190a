# wrong: one process on each node that has room, and again from the first
# told: dealt out in rounds


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [
        (node, local)
        for local in range(max(gpus))
        for node, count in enumerate(gpus)
        if local < count
    ]
