# wrong: each rank names itself as the one that sends
# told: broadcast_object_list(told, src=dist.get_rank())
# told: with the same arguments
# right at: 1
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    told = [None, None]
    if dist.get_rank() == 0:
        try:
            told[0] = make_folder()
        except Exception as error:
            told[1] = repr(error)
    dist.broadcast_object_list(told, src=dist.get_rank())
    path, problem = told
    if problem is not None:
        raise RuntimeError(problem)
    return path
