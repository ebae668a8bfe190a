# wrong: rank 0 alone makes the groups
# told: Some ranks make more groups than others
# right at: 1
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank = dist.get_rank()
    row_groups, column_groups = [None] * rows, [None] * columns
    if rank == 0:
        row_groups = [dist.new_group(range(r * columns, (r + 1) * columns)) for r in range(rows)]
        column_groups = [dist.new_group(range(c, rows * columns, columns)) for c in range(columns)]
    return row_groups[rank // columns], column_groups[rank % columns]
