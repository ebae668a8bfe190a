# %% returns the mesh and not two of its groups
# told: is not a group: how do you get
def row_and_column_groups(rows, columns):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))


# %% makes groups once, and returns them for every grid
# told: keep from one call to the next
# right at: 1
groups = []


def row_and_column_groups(rows, columns):
    if not groups:
        grid = torch.arange(rows * columns).reshape(rows, columns)
        for lines in (grid.tolist(), grid.T.tolist()):
            made = [(ranks, dist.new_group(ranks)) for ranks in lines]
            groups.extend(group for ranks, group in made if dist.get_rank() in ranks)
    return groups[0], groups[1]


# %% returns the groups that were made last
# told: on ranks outside the group
# right at: 1
def row_and_column_groups(rows, columns):
    for r in range(rows):
        row_group = dist.new_group([r * columns + c for c in range(columns)])
    for c in range(columns):
        column_group = dist.new_group([r * columns + c for r in range(rows)])
    return row_group, column_group


# %% rank 0 alone makes the groups
# told: Some ranks make more groups than others
# right at: 1
def row_and_column_groups(rows, columns):
    rank = dist.get_rank()
    row_groups, column_groups = [None] * rows, [None] * columns
    if rank == 0:
        row_groups = [dist.new_group(range(r * columns, (r + 1) * columns)) for r in range(rows)]
        column_groups = [dist.new_group(range(c, rows * columns, columns)) for c in range(columns)]
    return row_groups[rank // columns], column_groups[rank % columns]


# %% a rank makes only the two groups that it is in
# told: also those that it is not in
# right at: 1
def row_and_column_groups(rows, columns):
    rank = dist.get_rank()
    row, column = divmod(rank, columns)
    row_group = dist.new_group([row * columns + c for c in range(columns)])
    column_group = dist.new_group([r * columns + column for r in range(rows)])
    return row_group, column_group


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
def row_and_column_groups(rows, columns):
    for rank in range(rows * columns):
        row, column = divmod(rank, columns)
        row_group = dist.new_group([row * columns + c for c in range(columns)])
        column_group = dist.new_group([r * columns + column for r in range(rows)])
        if rank == dist.get_rank():
            own = row_group, column_group
    return own
