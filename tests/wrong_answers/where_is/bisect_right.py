# wrong: bisect_right finds the end of the rank's node, and not its beginning
# told: There is no such node
from bisect import bisect_right
from itertools import accumulate


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    ends = [0, *accumulate(gpus)]
    nodes = [bisect_right(ends, rank) for rank in range(ends[-1])]
    return [(node, rank - ends[node]) for rank, node in enumerate(nodes)]
