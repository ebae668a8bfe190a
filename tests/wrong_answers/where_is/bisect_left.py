# wrong: bisect_left finds the node before, for the first rank of a node
# told: a local rank that does not exist there
from bisect import bisect_left
from itertools import accumulate


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    ends = [0, *accumulate(gpus)]
    nodes = [max(0, bisect_left(ends, rank) - 1) for rank in range(ends[-1])]
    return [(node, rank - ends[node]) for rank, node in enumerate(nodes)]
