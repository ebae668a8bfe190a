# wrong: makes groups of one rank for the row
# told: is alone in a group
# right at: 1
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank = dist.get_rank()
    alone = [dist.new_group([r]) for r in range(rows * columns)]
    column_groups = [dist.new_group(range(c, rows * columns, columns)) for c in range(columns)]
    return alone[rank], column_groups[rank % columns]
