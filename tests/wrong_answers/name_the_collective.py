# %% names without their letters
# told: a dict of names, with the letters
def name_the_collective():
    return ["reduce", "all_gather", "all_to_all", "scatter"]


# %% everyone gets everything, and not a piece of each
# told: C of the table
# told: all_gather gives
edit('"all_to_all"', '"all_gather"')


# %% everyone gets the pieces, not one rank alone
# told: H of the table
# told: all_gather gives
edit('"gather"', '"all_gather"')


# %% everyone gets the sum, not one rank alone
# told: A of the table
# told: all_reduce gives
edit('"reduce"', '"all_reduce"')


# %% pieces of all ranks, where one rank deals out its own
# told: D of the table
# told: all_to_all gives
edit('"scatter"', '"all_to_all"')


# %% takes the sums for means, as of gradients
# told: F of the table
# told: How does the table combine them
edit('"reduce_scatter"', '"reduce_scatter AVG"')


# %% takes many equal numbers for one that was handed round
# told: B of the table
# told: broadcast gives
edit('"all_gather"', '"broadcast"')


# %% takes the largest numbers for those of one rank
# told: G of the table
# told: broadcast gives
edit('"all_reduce MAX"', '"broadcast"')


# %% the functions, where their names are asked for
# told: What does the annotation say about the type
import torch.distributed as dist


def name_the_collective():
    return {"A": dist.reduce, "B": dist.all_gather, "G": (dist.all_reduce, dist.ReduceOp.MAX)}


# %% one rank gets the pieces, not everyone
# told: B of the table
# told: gather gives
edit('"all_gather"', '"gather"')


# %% an operation for a call that only moves
# told: combine numbers, or move them
edit('"broadcast"', '"broadcast MAX"')


# %% a name that torch.distributed has not
# told: Is it one of the eight names, in the same
edit('"reduce"', '"allreduce MAX"')


# %% a word that is none of ReduceOp's names
# told: Is what comes after it one of the operations
edit("all_reduce MAX", "all_reduce maximum")


# %% a letter without a name
# told: no name for G
edit('"all_reduce MAX"', "None")


# %% deals out pieces without adding up
# told: F of the table
# told: scatter gives
edit('"reduce_scatter"', '"scatter"')


# %% adds up what is only handed round
# told: E of the table
# told: all_reduce gives
edit('"broadcast"', '"all_reduce"')


# %% adds up where the largest number wins
# told: G of the table
# told: all_reduce gives 18 20
edit("all_reduce MAX", "all_reduce")


# %% adds up where the smallest number wins, and does not say so
# told: D of the table
# told: without an operation after its name, it adds up
edit('"scatter"', '"reduce_scatter"')


# %% two names for a letter, both of which would be right
# told: Which of the two do you choose
edit('"broadcast"', '"broadcast or all_reduce MAX"')
