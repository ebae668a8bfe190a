# wrong: the others wait, and do not learn the path
# told: How does the other rank learn it
# right at: 1
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    folder = None
    if dist.get_rank() == 0:
        folder = make_folder()
    dist.barrier()
    return folder
