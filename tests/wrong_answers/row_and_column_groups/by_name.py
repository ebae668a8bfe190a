# wrong: a dict, in which the caller does not find two groups
# told: unpacks a dict
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    row_groups = [dist.new_group(line) for line in grid.tolist()]
    column_groups = [dist.new_group(line) for line in grid.T.tolist()]
    row, column = divmod(dist.get_rank(), columns)
    return {"row": row_groups[row], "column": column_groups[column]}
