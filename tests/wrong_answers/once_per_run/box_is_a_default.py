# wrong: the box is made once, and holds the path of an earlier run
# told: keep from one call to the next
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    return tell(make_folder)


def tell(make_folder: Callable[[], str], box: list = [None]) -> str:
    if dist.get_rank() == 0:
        try:
            box[0] = make_folder()
        except Exception as error:
            print(error)
    dist.broadcast_object_list(box, src=0)
    if box[0] is None:
        raise RuntimeError("no folder")
    return box[0]
