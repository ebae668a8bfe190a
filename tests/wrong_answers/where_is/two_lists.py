# wrong: the nodes in one list, the local ranks in another
# told: These are two lists


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    nodes, locals_ = [], []
    for node, count in enumerate(gpus):
        nodes += [node] * count
        locals_ += range(count)
    return nodes, locals_
