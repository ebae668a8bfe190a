"""Page 00: what four processes did with one program."""

import os
from typing import NamedTuple

import torch
import torch.distributed as dist


class Held(NamedTuple):
    """What one rank held: before and after the sum, and the number of its process."""

    process: int
    before: float
    after: float


def one_sum() -> Held:
    """Each rank begins with its rank plus one; afterwards all have the sum."""
    dist.init_process_group("gloo")  # x is on the CPU, also where each rank has a GPU
    x = torch.tensor(dist.get_rank() + 1.0)
    before = x.item()
    dist.all_reduce(x)
    return Held(os.getpid(), before, x.item())
