# wrong: the others are sent None, and return it
# told: What were they told
# right at: 1
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    folder = [None]
    try:
        if dist.get_rank() == 0:
            folder[0] = make_folder()
    finally:
        dist.broadcast_object_list(folder, src=0)
    return folder[0]
