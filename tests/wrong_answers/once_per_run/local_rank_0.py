# wrong: the first process of every node makes a folder
# told: Each node has a local rank 0
# right at: 1,2
import os
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    told = [None, None]
    if int(os.environ["LOCAL_RANK"]) == 0:
        try:
            told[0] = make_folder()
        except Exception as error:
            told[1] = repr(error)
    dist.broadcast_object_list(told, src=0)
    if told[1]:
        raise RuntimeError(told[1])
    return told[0]
