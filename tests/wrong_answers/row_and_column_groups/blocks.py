# wrong: takes ranks that follow on each other for a column
# told: How far apart are they
# right at: 1,2,3
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    rank, groups = dist.get_rank(), []
    for length in (columns, rows):
        for start in range(0, rows * columns, length):
            members = list(range(start, start + length))
            group = dist.new_group(members)
            if rank in members:
                groups.append(group)
    return tuple(groups)
