# wrong: returns the groups that were made last
# told: on ranks outside the group
# right at: 1
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    for r in range(rows):
        row_group = dist.new_group([r * columns + c for c in range(columns)])
    for c in range(columns):
        column_group = dist.new_group([r * columns + c for r in range(rows)])
    return row_group, column_group
