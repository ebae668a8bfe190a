# wrong: makes no group where a row or column has one rank
# told: group=None means the whole world
# right at: 6
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank, row_group, column_group = dist.get_rank(), None, None
    for row in range(rows if columns > 1 else 0):
        group = dist.new_group([row * columns + column for column in range(columns)])
        row_group = group if rank // columns == row else row_group
    for column in range(columns if rows > 1 else 0):
        group = dist.new_group([row * columns + column for row in range(rows)])
        column_group = group if rank % columns == column else column_group
    return row_group, column_group
