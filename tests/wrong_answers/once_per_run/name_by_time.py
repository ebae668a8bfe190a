# wrong: each rank makes up a name from its own clock
# told: Only rank 0 can know this name
# right at: 1
import time
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    folder = f"work/runs/{time.time_ns()}"
    if dist.get_rank() == 0:
        folder = make_folder()
    dist.barrier()
    return folder
