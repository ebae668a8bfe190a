# wrong: under zero_1 a rank keeps the parameters of its tensors alone
# told: Which ranks have the parameters?
from itertools import chain
from math import ceil, prod


def memory_per_rank(root, blocks, ranks, strategy):
    n = {"ddp": 1, "zero_1": 1, "hsdp": ranks // 2}.get(strategy, ranks)

    def shard(shapes):
        return sum(ceil(rows / n) * prod(rest) for rows, *rest in shapes)

    everything = [*root, *chain(*blocks)]
    kept = 4 * shard(everything)
    optimizer, gathered = 2 * kept, 0
    if strategy == "zero_1":
        loads = [0] * ranks
        for elements in sorted(map(prod, everything), reverse=True):
            loads[loads.index(min(loads))] += elements
        kept = 4 * max(loads)
        optimizer = 2 * kept
    elif strategy in ("zero_2", "whole"):
        gathered = n * kept
    elif strategy != "ddp":
        itemsize = 2 if strategy == "bf16" else 4
        gathered = itemsize * n * (shard(root) + max(map(shard, blocks), default=0))
    return {"parameters": kept, "gradients": kept, "optimizer": optimizer, "gathered": gathered}
