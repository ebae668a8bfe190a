# wrong: rank 0 raises, and never comes to the broadcast
# told: raises OSError('disk full') on rank 0 rank 0 has returned without it
# told: there will be no folder
# right at: 1
from collections.abc import Callable

import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    folder = [None]
    if dist.get_rank() == 0:
        folder[0] = make_folder()
    dist.broadcast_object_list(folder, src=0)
    return folder[0]
