# wrong: as if every node had as many GPUs as the smallest one
# told: as many GPUs as the smallest one


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    return [divmod(rank, max(1, min(gpus))) for rank in range(sum(gpus))]
