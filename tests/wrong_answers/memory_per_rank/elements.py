# wrong: counts elements instead of bytes
# told: These are elements. How many bytes
from itertools import chain
from math import ceil, prod


def memory_per_rank(root, blocks, ranks, strategy):
    n = {"ddp": 1, "zero_1": 1, "hsdp": ranks // 2}.get(strategy, ranks)

    def shard(shapes):
        return sum(ceil(rows / n) * prod(rest) for rows, *rest in shapes)

    everything = [*root, *chain(*blocks)]
    kept = shard(everything)
    optimizer, gathered = 2 * kept, 0
    if strategy == "zero_1":
        loads = [0] * ranks
        for elements in sorted(map(prod, everything), reverse=True):
            loads[loads.index(min(loads))] += elements
        optimizer = 2 * max(loads)
    elif strategy in ("zero_2", "whole"):
        gathered = n * kept
    elif strategy != "ddp":
        itemsize = 1
        gathered = itemsize * n * (shard(root) + max(map(shard, blocks), default=0))
    return {"parameters": kept, "gradients": kept, "optimizer": optimizer, "gathered": gathered}
