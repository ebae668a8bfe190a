# wrong: sends each character as a byte
# told: How many bytes does a character take
from collections.abc import Callable

import torch
import torch.distributed as dist


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    path, size = "", torch.tensor(-1)
    if dist.get_rank() == 0:
        try:
            path = make_folder()
            size.fill_(len(path))
        except Exception as error:
            print(error)
    dist.broadcast(size, src=0)
    if size < 0:
        raise RuntimeError("no folder")
    letters = torch.tensor([ord(one) for one in path.ljust(int(size))], dtype=torch.uint8)
    dist.broadcast(letters, src=0)
    return "".join(map(chr, letters.tolist()))
