# wrong: returns which row and which column it is, not the groups
# told: This is not a group
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    for line in grid.tolist() + grid.T.tolist():
        dist.new_group(line)
    return divmod(dist.get_rank(), columns)
