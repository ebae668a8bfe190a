# wrong: as if the GPUs were spread evenly over the nodes
# told: every node has the mean number of GPUs


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    per_node = sum(gpus) // len(gpus)
    places = []
    for rank in range(sum(gpus)):
        places.append((rank // per_node, rank % per_node))
    return places
