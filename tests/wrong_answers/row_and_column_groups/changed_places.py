# wrong: returns the group of the column first
# told: right groups in the wrong order
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank = dist.get_rank()
    grid = torch.arange(rows * columns).reshape(rows, columns)
    row_groups = [dist.new_group(line) for line in grid.tolist()]
    column_groups = [dist.new_group(line) for line in grid.T.tolist()]
    return column_groups[rank % columns], row_groups[rank // columns]
