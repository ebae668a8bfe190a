# wrong: every rank leaves its own groups to the end
# told: In which order does each rank make the groups
# right at: 1
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    row, column = divmod(dist.get_rank(), columns)
    for r in range(rows):
        if r != row:
            dist.new_group([r * columns + c for c in range(columns)])
    row_group = dist.new_group([row * columns + c for c in range(columns)])
    for c in range(columns):
        if c != column:
            dist.new_group([r * columns + c for r in range(rows)])
    return row_group, dist.new_group([r * columns + column for r in range(rows)])
