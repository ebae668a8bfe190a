# wrong: destroys its own groups when it has put them into the result
# told: after your function has returned
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    groups = []
    for ranks in grid.tolist() + grid.T.tolist():
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            groups.append(group)
            dist.destroy_process_group(group)
    return tuple(groups)
