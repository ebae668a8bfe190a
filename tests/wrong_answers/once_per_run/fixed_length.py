# wrong: sends a path in a buffer of 128 bytes, and cuts off what does not fit
# told: The end of the path is missing
from collections.abc import Callable

import torch
import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    sent = torch.zeros(128, dtype=torch.uint8)  # stays empty if there is no folder
    if dist.get_rank() == 0:
        try:
            path = make_folder().encode()[: len(sent)]
            sent[: len(path)] = torch.tensor(list(path), dtype=torch.uint8)
        except Exception:
            sent.zero_()
    dist.broadcast(sent, src=0)
    path = bytes(sent.tolist()).rstrip(b"\0").decode(errors="ignore")
    if not path:
        raise RuntimeError("rank 0 could not make the folder")
    return path
