# wrong: the ranks are tensors, which src= does not find in the group
# told: new_group takes ranks as ints
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    row_groups = [dist.new_group(line) for line in grid]
    column_groups = [dist.new_group(line) for line in grid.T]
    row, column = divmod(dist.get_rank(), columns)
    return row_groups[row], column_groups[column]
