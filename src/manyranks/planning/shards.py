"""How FSDP2 cuts a parameter: by rows, with padding, exactly as `fully_shard` does.

Shapes come in units: a list for each module that `fully_shard` was called on, in the order in which
forward enters them. The root is first; it holds the remaining parameters, and may be empty.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import TypeVar

from torch.distributed.tensor import Shard

Shape = Sequence[int]  # a torch.Size
Unit = Sequence[Shape]
Units = Sequence[Unit]
Result = TypeVar("Result")


def shard_numel(shape: Shape, ranks: int, rank: int = 0) -> int:
    """Elements of the shard that `rank` of `ranks` holds: what its DTensor's local tensor shows.

    Raises ValueError for a parameter without dimensions, which `fully_shard` refuses too.
    """
    if not len(shape):
        raise ValueError("fully_shard cuts a parameter by rows, but a scalar parameter has none.")
    return shard_rows(shape[0], ranks, rank) * prod(shape[1:])


@cache
def shard_rows(rows: int, ranks: int, rank: int) -> int:
    """Rows of one rank by torch's own arithmetic.

    Each rank gets ceil(rows / ranks) until none are left: the last ranks may have fewer, or none.
    """
    return int(Shard.local_shard_size_and_offset(rows, ranks, rank)[0])


def numel(units: Units) -> int:
    """Parameters of the whole model."""
    return sum(prod(shape) for unit in units for shape in unit)


def shard_of(unit: Unit, ranks: int, rank: int = 0) -> int:
    """Elements of a unit's shard on `rank`. Rank 0's has no padding, and is never smaller.

    All ranks of an all-gather send equally many bytes, so each stores and hands in as many as rank
    0. A block with hundreds of experts has few different shapes, so each of them is asked once.
    """
    shapes = Counter(map(tuple, unit)).items()
    return sum(times * shard_numel(shape, ranks, rank) for shape, times in shapes)


def of_each(units: Units, function: Callable[[Unit], Result]) -> list[Result]:
    """What a function says of each unit; equal ones are mostly one object, and asked about once."""
    results = {id(unit): function(unit) for unit in {id(unit): unit for unit in units}.values()}
    return [results[id(unit)] for unit in units]


def zero_1_parts(units: Units, ranks: int) -> list[list[Shape]]:
    """Which parameters each rank's part of ZeroRedundancyOptimizer updates; whole tensors.

    The largest tensor first, each to the rank that has the fewest elements so far. No tensor is
    cut, so the largest one is a floor that more ranks do not lower.
    """
    parts: list[list[Shape]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]  # a heap; the lowest of equal ranks is first
    for shape in sorted((s for unit in units for s in unit), key=prod, reverse=True):
        load, least = loads[0]
        parts[least].append(shape)
        heapq.heapreplace(loads, (load + prod(shape), least))
    return parts
