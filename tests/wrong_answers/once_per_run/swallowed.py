# wrong: rank 0 catches its error, and nobody hears of it
# told: What happens to the error that make_folder raised
# told: raises OSError('disk full')
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    folder = [None]
    if dist.get_rank() == 0:
        try:
            folder[0] = make_folder()
        except Exception as error:
            print(f"no folder: {error}")
    dist.broadcast_object_list(folder, src=0)
    return folder[0]
