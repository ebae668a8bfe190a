# wrong: as if every node had as many GPUs as the largest one
# told: every node has as many GPUs as the largest one


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    per_node = max(gpus)
    return [(rank // per_node, rank % per_node) for rank in range(sum(gpus))]
