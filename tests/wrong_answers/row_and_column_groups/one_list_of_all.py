# wrong: returns the groups of all rows and all columns in one list
# told: Return two groups
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    return [dist.new_group(line) for line in grid.tolist() + grid.T.tolist()]
