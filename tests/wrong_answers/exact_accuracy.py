# %% guesses in the mode in which it finds the model
# told: Dropout and similar layers are active
edit("    model.eval()\n", "")

# %% builds a graph for a backward that never comes
# told: What is kept in memory for a backward
edit("torch.no_grad()", "torch.enable_grad()")

# %% takes the whole share at once
# told: The caller's memory holds no more rows
edit("DataLoader(mine, batch_size)", "DataLoader(mine, max(1, len(mine)))")

# %% divides batch_size by the ranks, which can give 0
# told: batch_size can be smaller than the world size
# right at: 1, 2
edit("mine, batch_size", "mine, batch_size // dist.get_world_size()")

# %% drop_last makes the ranks equal, and leaves samples out
# told: or does a sampler or a loader drop
# right at: 1
edit(
    "mine = Subset",
    "each = len(dataset) // dist.get_world_size()\n    mine = Subset",
    "len(dataset), dist.get_world_size()))",
    "each * dist.get_world_size(), dist.get_world_size()))",
)

# %% gives each rank a block of the same length, also where the data set has ended
# told: A rank asks for a sample after the last one
# right at: 1
edit(
    "    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))",
    """    share = -(-len(dataset) // dist.get_world_size())
    first = dist.get_rank() * share
    mine = Subset(dataset, range(first, first + share))""",
)

# %% a rank without samples does not come to the meeting
# told: has returned without it
# right at: 1
edit("    right = torch", "    if len(mine) == 0:\n        return 0.0\n    right = torch")

# %% a rank divides Python's whole numbers, also without samples
# told: Which line divides by a rank's own number of them?
# right at: 1
edit(
    "    dist.all",
    "    right = torch.tensor(right.item() / len(mine) * len(mine))\n    dist.all",
)

# %% adds up fractions, which are rounded
# told: Right except for the last digits
# right at: 1
edit(
    "    dist.all",
    "    right = right.double() / len(dataset)\n    dist.all",
    "right.item() / len(dataset)",
    "right.item()",
)

# %% lets the all-reduce divide whole numbers
# told: A fraction does not fit into a tensor of whole numbers
edit("all_reduce(right)", "all_reduce(right, op=dist.ReduceOp.AVG)")
