# wrong: returns all that new_subgroups_by_enumeration returns: its own group, and a list
# told: Which of the two belongs here
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    row = dist.new_subgroups_by_enumeration(grid.tolist())
    column = dist.new_subgroups_by_enumeration(grid.T.tolist())
    return row, column
