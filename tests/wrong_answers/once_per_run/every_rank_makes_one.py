# wrong: every rank makes a folder of its own
# told: How many folders does this make
# right at: 1
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    folder = make_folder()
    dist.barrier()
    return folder
