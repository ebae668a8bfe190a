# wrong: the other direction only, as a dict
# told: no key is needed


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    ranks = iter(range(sum(gpus)))
    return {(node, local): next(ranks) for node, count in enumerate(gpus) for local in range(count)}
