# wrong: returns the mesh and not two of its groups
# told: The mesh has made the groups
from torch.distributed import ProcessGroup


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))
