# %% asks for the number of steps with a collective more
# told: What is the other one for
# right at: 1
edit(
    "    totals = []\n",
    "    most = torch.tensor(len(own))\n"
    "    dist.all_reduce(most, dist.ReduceOp.MAX)\n"
    "    totals = []\n",
    "-(-len(rows) // ranks)",
    "int(most)",
)

# %% a step too many where there are no rows
# told: There are no rows here
edit("-(-len(rows) // ranks)", "max(1, -(-len(rows) // ranks))")

# %% takes blocks of rows instead of every W-th
# told: All rows are there, but in other steps
edit("rows[rank::ranks]", "rows[-(-len(rows) // ranks) * rank :][: -(-len(rows) // ranks)]")

# %% leaves the last row out
# told: less than all rows
edit("rows[rank::ranks]", "rows[: len(rows) - len(rows) // 10][rank::ranks]")

# %% adds the first row again at the end
# told: more than all rows
edit("rows[rank::ranks]", "torch.cat([rows, rows[:1]])[rank::ranks]")
