# wrong: sends the folder's name without the folders that it is in
# told: The name is right
# right at: 1
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    told, path = [None, None], None
    if dist.get_rank() == 0:
        try:
            path = make_folder()
            told[0] = Path(path).name
        except Exception as error:
            told[1] = repr(error)
    dist.broadcast_object_list(told, src=0)
    if told[1]:
        raise RuntimeError(told[1])
    return path or told[0]
