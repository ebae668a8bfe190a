# %% returns the mesh and not two of its groups
# told: The mesh has made the groups
def row_and_column_groups(rows, columns):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))


# %% returns all groups, and not the own ones
# told: Return only one of these groups
edit("row_groups[row], column_groups[column]", "row_groups, column_groups")


# %% makes groups of one rank for the row
# told: is alone in a group
# right at: 1
def row_and_column_groups(rows, columns):
    rank = dist.get_rank()
    alone = [dist.new_group([r]) for r in range(rows * columns)]
    column_groups = [dist.new_group(range(c, rows * columns, columns)) for c in range(columns)]
    return alone[rank], column_groups[rank % columns]


# %% a dict, in which the caller does not find two groups
# told: unpacks a dict
edit("row_groups[row], column_groups[column]", "dict(zip(row_groups, column_groups))")


# %% destroys its own groups when it has put them into the result
# told: after your function has returned
def row_and_column_groups(rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    groups = []
    for ranks in grid.tolist() + grid.T.tolist():
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            groups.append(group)
            dist.destroy_process_group(group)
    return tuple(groups)


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


# %% returns the ranks, not groups of them
# told: These look like ranks
def row_and_column_groups(rows, columns):
    rank = dist.get_rank()
    row = [r for r in range(rows * columns) if r // columns == rank // columns]
    column = [r for r in range(rows * columns) if r % columns == rank % columns]
    return row, column


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


# %% makes no group where a row or column has one rank
# told: group=None means the whole world
# right at: 6
def row_and_column_groups(rows, columns):
    rank, row_group, column_group = dist.get_rank(), None, None
    for row in range(rows if columns > 1 else 0):
        group = dist.new_group([row * columns + column for column in range(columns)])
        row_group = group if rank // columns == row else row_group
    for column in range(columns if rows > 1 else 0):
        group = dist.new_group([row * columns + column for row in range(rows)])
        column_group = group if rank % columns == column else column_group
    return row_group, column_group


# %% returns all that new_subgroups_by_enumeration returns: its own group, and a list
# told: Which of the two belongs here
body("""
    grid = torch.arange(rows * columns).reshape(rows, columns).tolist()
    columns = [list(column) for column in zip(*grid)]
    return dist.new_subgroups_by_enumeration(grid), dist.new_subgroups_by_enumeration(columns)
""")


# %% returns the groups of all rows and all columns in one list
# told: Return two groups
# right at: 1
edit("row_groups[row], column_groups[column]", "row_groups + column_groups")


# %% a rank makes only the two groups that it is in
# told: Who else must make them
# right at: 1
def row_and_column_groups(rows, columns):
    rank = dist.get_rank()
    row, column = divmod(rank, columns)
    row_group = dist.new_group([row * columns + c for c in range(columns)])
    column_group = dist.new_group([r * columns + column for r in range(rows)])
    return row_group, column_group


# %% goes through a set, whose order depends on the hash seed of the process
# told: A set of strings has a different order in every process
# right at: 1
def row_and_column_groups(rows, columns):
    grid = torch.arange(rows * columns).reshape(rows, columns)
    own = {}
    for kind in {"row", "column"}:
        for ranks in (grid if kind == "row" else grid.T).tolist():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                own[kind] = group
    return own["row"], own["column"]


# %% every rank leaves its own groups to the end
# told: In which order does each rank make the groups
# right at: 1
def row_and_column_groups(rows, columns):
    row, column = divmod(dist.get_rank(), columns)
    for r in range(rows):
        if r != row:
            dist.new_group([r * columns + c for c in range(columns)])
    row_group = dist.new_group([row * columns + c for c in range(columns)])
    for c in range(columns):
        if c != column:
            dist.new_group([r * columns + c for r in range(rows)])
    return row_group, dist.new_group([r * columns + column for r in range(rows)])


# %% the ranks are tensors, which src= does not find in the group
# told: new_group takes ranks as ints
edit("grid.tolist()", "grid", "grid.T.tolist()", "grid.T")


# %% makes the groups and does not return them
# told: Does every path through the function return the groups
edit("return row_groups", "row_groups")


# %% returns slices of a mesh, which are meshes
# told: A slice of a mesh is a mesh
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def row_and_column_groups(rows, columns):
    mesh = init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))
    return mesh["column"], mesh["row"]


# %% divides by the number of rows: right on a square
# told: How many rows are there, and how many columns
# right at: 1
edit("divmod(dist.get_rank(), columns)", "divmod(dist.get_rank(), rows)")


# %% returns the default group for both
# told: This group holds all ranks
# right at: 1
edit("row_groups[row], column_groups[column]", "(dist.new_group(),) * 2")


# %% returns which row and which column it is, not the groups
# told: This is not a group
edit("row_groups[row], column_groups[column]", "row, column")


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
