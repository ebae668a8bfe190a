# wrong: returns the default group for both
# told: This group holds all ranks
# right at: 1
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    group = dist.new_group()
    return group, group
