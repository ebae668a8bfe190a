# wrong: asks whether there is a message, and an error may have none
# told: What happens to the error that make_folder raised
# told: raises ValueError() on rank 0
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    told = [None, ""]
    if dist.get_rank() == 0:
        try:
            told[0] = make_folder()
        except Exception as error:
            told[1] = str(error)
    dist.broadcast_object_list(told, src=0)
    if told[1]:
        raise RuntimeError(told[1])
    return told[0]
