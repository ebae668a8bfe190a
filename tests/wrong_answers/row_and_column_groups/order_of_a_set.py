# wrong: goes through a set, whose order depends on the hash seed of the process
# told: A set of strings has a different order in every process
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    grid = torch.arange(rows * columns).reshape(rows, columns)
    own = {}
    for kind in {"row", "column"}:
        for ranks in (grid if kind == "row" else grid.T).tolist():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                own[kind] = group
    return own["row"], own["column"]
