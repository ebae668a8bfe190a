# wrong: a rank makes only the two groups that it is in
# told: Who else must make them
# right at: 1
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank = dist.get_rank()
    row, column = divmod(rank, columns)
    row_group = dist.new_group([row * columns + c for c in range(columns)])
    column_group = dist.new_group([r * columns + column for r in range(rows)])
    return row_group, column_group
