# wrong: the others fail over None, with an error that was not meant
# told: does a rank fail because of something
# right at: 1
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    told = [None]
    try:
        if dist.get_rank() == 0:
            told[0] = make_folder()
    finally:
        dist.broadcast_object_list(told, src=0)
    return "" + told[0]
