# wrong: one strategy has no branch
# told: under every strategy?
from itertools import chain
from math import ceil, prod


def memory_per_rank(root, blocks, ranks, strategy):
    def shard(shapes, n):
        return 4 * sum(ceil(rows / n) * prod(rest) for rows, *rest in shapes)

    everything = [*root, *chain(*blocks)]
    whole, piece = shard(everything, 1), shard(everything, ranks)
    if strategy == "ddp":
        return dict(parameters=whole, gradients=whole, optimizer=2 * whole, gathered=0)
    if strategy == "zero_1":
        loads = [0] * ranks
        for elements in sorted(map(prod, everything), reverse=True):
            loads[loads.index(min(loads))] += 8 * elements
        return dict(parameters=whole, gradients=whole, optimizer=max(loads), gathered=0)
    sharded = dict(parameters=piece, gradients=piece, optimizer=2 * piece)
    if strategy in ("zero_2", "whole"):
        return sharded | {"gathered": ranks * piece}
    block = max((shard(block, ranks) for block in blocks), default=0)
    if strategy in ("zero_3", "bf16"):
        gathered = ranks * (shard(root, ranks) + block)
        return sharded | {"gathered": gathered // (2 if strategy == "bf16" else 1)}
