# %% makes groups once, and returns them for every grid
# told: keep from one call to the next
# right at: 1
edit(
    "def row_and",
    "KEPT = []\n\n\ndef row_and",
    "    return row_groups[row], column_groups[column]",
    "    KEPT.append((row_groups[row], column_groups[column]))\n    return KEPT[0]",
)

# %% returns the groups that were made last
# told: on ranks outside the group
# right at: 1
edit("row_groups[row], column_groups[column]", "row_groups[-1], column_groups[-1]")

# %% rank 0 alone makes the groups
# told: Some ranks make more groups than others
# right at: 1
edit("    row_groups =", "    if dist.get_rank() > 0:\n        return None, None\n    row_groups =")

# %% a rank makes only the two groups that it is in
# told: also those that it is not in
# right at: 1
edit(
    "in grid.tolist()",
    "in grid.tolist() if dist.get_rank() in ranks",
    "in grid.T.tolist()",
    "in grid.T.tolist() if dist.get_rank() in ranks",
    "row_groups[row], column_groups[column]",
    "*row_groups, *column_groups",
)

# %% divides by the number of rows: right on a square
# told: How long is the list, or how many ranks are there
# right at: 1
edit("divmod(dist.get_rank(), columns)", "divmod(dist.get_rank(), rows)")

# %% returns the default group for both
# told: Draw the grid
# right at: 1
edit("row_groups[row], column_groups[column]", "(dist.new_group(),) * 2")

# %% makes a row's group once for each of its ranks, and keeps the one of its own turn
# told: and are not the same group
# right at: 1
edit(
    "in grid.tolist()",
    "in grid.repeat_interleave(columns, dim=0).tolist()",
    "in grid.T.tolist()",
    "in grid.T.repeat(rows, 1).tolist()",
    "row_groups[row], column_groups[column]",
    "row_groups[dist.get_rank()], column_groups[dist.get_rank()]",
)

# %% returns a mesh and not two of its groups
# told: is not a group: how do you get
edit(
    "row_groups[row], column_groups[column]",
    "dist.init_device_mesh('cpu', (rows, columns), mesh_dim_names=('row', 'column'))",
)
