# %% shortens the names of the parts
# told: Which keys does the task name?
edit('"optimizer": optimizer', '"states": optimizer')

# %% returns text with separators
# told: Which of your lines makes a dict of plain numbers
edit('"gathered": gathered', '"gathered": f"{gathered:,}"')

# %% sorts the caller's blocks
# told: Which line changes the caller's lists
edit("    kept = ", "    blocks.sort(key=shard)\n    kept = ")

# %% max of no blocks
# told: What is the largest of none
edit(", default=0", "")

# %% takes every tensor for a matrix
# told: one dimension, two or three
edit("prod(rest) for rows, *rest", "columns for rows, columns")

# %% padded gradients, as they go into the reduce-scatter
# told: Gradients are as large as the parameters
edit('"gradients": kept', '"gradients": n * kept')
