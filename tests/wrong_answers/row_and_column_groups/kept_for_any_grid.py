# wrong: makes groups once, and returns them for every grid
# told: keep from one call to the next
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

groups = []


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    if not groups:
        grid = torch.arange(rows * columns).reshape(rows, columns)
        for lines in (grid.tolist(), grid.T.tolist()):
            made = [(ranks, dist.new_group(ranks)) for ranks in lines]
            groups.extend(group for ranks, group in made if dist.get_rank() in ranks)
    return groups[0], groups[1]
