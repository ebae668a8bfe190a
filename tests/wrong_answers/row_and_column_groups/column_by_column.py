# wrong: fills the grid column by column
# told: filled column by column
# right at: 1,2,3
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank = dist.get_rank()
    row_groups = [dist.new_group(range(r, rows * columns, rows)) for r in range(rows)]
    column_groups = [dist.new_group(range(c * rows, (c + 1) * rows)) for c in range(columns)]
    return row_groups[rank % rows], column_groups[rank // rows]
