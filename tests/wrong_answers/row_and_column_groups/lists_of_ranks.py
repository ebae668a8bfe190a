# wrong: returns the ranks, not groups of them
# told: These look like ranks
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank = dist.get_rank()
    row = [r for r in range(rows * columns) if r // columns == rank // columns]
    column = [r for r in range(rows * columns) if r % columns == rank % columns]
    return row, column
