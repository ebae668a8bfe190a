# %% shortens the names of the parts
# told: Which keys does the task name?
edit('"optimizer": optimizer', '"states": optimizer')


# %% returns text with separators
# told: Which of your lines makes a dict of plain numbers
edit('"gathered": gathered', '"gathered": f"{gathered:,}"')


# %% one strategy has no branch
# told: Does the function return its result
edit("    return {", '    if strategy == "hsdp":\n        return None\n    return {')


# %% sorts the caller's blocks
# told: Which line changes the caller's lists
edit("    kept = ", "    blocks.sort(key=shard)\n    kept = ")


# %% max of no blocks
# told: What is the largest of none
edit(", default=0", "")


# %% takes every tensor for a matrix
# told: one dimension, two or three
edit("prod(rest) for rows, *rest", "columns for rows, columns")


# %% the mean block, and there may be none
# told: By what do you divide then
edit("max(map(shard, blocks), default=0)", "sum(map(shard, blocks)) // len(blocks)")


# %% padded gradients, as they go into the reduce-scatter
# told: Gradients are as large as the parameters
edit('"gradients": kept', '"gradients": n * kept')


# %% collects the numbers for each strategy, and gathers blocks that are not padded
# told: This is rank 0's state
# told: The padding is missing
from math import ceil, prod


def memory_per_rank(root, blocks, ranks, strategy):
    def rows(n, shapes):
        return sum(ceil(shape[0] / n) * prod(shape[1:]) for shape in shapes)

    tensors = [shape for unit in (root, *blocks) for shape in unit]
    whole = sum(map(prod, tensors))
    root_and_block = sum(map(prod, root)) + max((sum(map(prod, one)) for one in blocks), default=0)
    if strategy in ("ddp", "zero_1"):
        state = whole
        if strategy == "zero_1":
            ranked = [0] * ranks
            for size in sorted(map(prod, tensors))[::-1]:
                ranked[ranked.index(min(ranked))] += size
            state = ranked[0]
        return dict(parameters=4 * whole, gradients=4 * whole, optimizer=8 * state, gathered=0)
    kept = 4 * rows(ranks // 2 if strategy == "hsdp" else ranks, tensors)
    gathered = 4 * (whole if strategy in ("blocks_stay_whole", "whole") else root_and_block)
    if strategy == "bf16":
        gathered //= 2
    return dict(parameters=kept, gradients=kept, optimizer=2 * kept, gathered=gathered)
