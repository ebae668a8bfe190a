# wrong: deals the ranks out to the nodes in turn
# told: dealt out to the nodes like cards


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    nodes = len(gpus)
    return [(rank % nodes, rank // nodes) for rank in range(sum(gpus))]
