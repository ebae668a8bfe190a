# %% everyone gets everything, and not a piece of each
# told: C of the table
# told: all_gather gives
edit('"all_to_all"', '"all_gather"')

# %% pieces of all ranks, where one rank deals out its own
# told: D of the table
# told: all_to_all gives
edit('"scatter"', '"all_to_all"')

# %% takes the sums for means, as of gradients
# told: F of the table
# told: and how? Without
edit('"reduce_scatter"', '"reduce_scatter AVG"')

# %% a name that torch.distributed has not
# told: Is it one name of the list
edit('"reduce"', '"allreduce MAX"')

# %% a letter without a name
# told: no name for G
edit('"all_reduce MAX"', "None")

# %% adds up where the largest number wins
# told: G of the table
# told: all_reduce gives 18 20
edit("all_reduce MAX", "all_reduce")

# %% one rank gets the pieces, not everyone
# told: B of the table
# told: A dash means
edit('"all_gather"', '"gather"')
