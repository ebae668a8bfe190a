# wrong: rank 0 tries once more after a failure
# told: How often does rank 0 reach the call
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    told = [None, None]
    if dist.get_rank() == 0:
        for _ in range(2):
            try:
                told = [make_folder(), None]
                break
            except Exception as error:
                told[1] = repr(error)
    dist.broadcast_object_list(told, src=0)
    if told[1]:
        raise RuntimeError(told[1])
    return told[0]
