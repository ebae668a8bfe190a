# wrong: returns slices of a mesh, which are meshes
# told: A slice of a mesh is a mesh
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    mesh = init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))
    return mesh["column"], mesh["row"]
