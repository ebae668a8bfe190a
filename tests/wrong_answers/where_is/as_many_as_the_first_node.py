# wrong: as if every node had as many GPUs as the first one
# told: as many GPUs as node 0


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [divmod(rank, gpus[0]) for rank in range(sum(gpus))]
