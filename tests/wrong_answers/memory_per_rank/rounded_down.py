# wrong: rounds the rows of a rank down
# told: The remainder of the rows is lost
from itertools import chain
from math import prod


def memory_per_rank(root, blocks, ranks, strategy):
    n = {"ddp": 1, "zero_1": 1, "hsdp": ranks // 2}.get(strategy, ranks)

    def shard(shapes):
        return sum(rows // n * prod(rest) for rows, *rest in shapes)

    everything = [*root, *chain(*blocks)]
    kept = 4 * shard(everything)
    optimizer, gathered = 2 * kept, 0
    if strategy == "zero_1":
        loads = [0] * ranks
        for elements in sorted(map(prod, everything), reverse=True):
            loads[loads.index(min(loads))] += elements
        optimizer = 8 * max(loads)
    elif strategy in ("zero_2", "whole"):
        gathered = n * kept
    elif strategy != "ddp":
        itemsize = 2 if strategy == "bf16" else 4
        gathered = itemsize * n * (shard(root) + max(map(shard, blocks), default=0))
    return {"parameters": kept, "gradients": kept, "optimizer": optimizer, "gathered": gathered}
