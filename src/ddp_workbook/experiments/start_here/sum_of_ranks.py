"""The program of page 00's player: four ranks add up their numbers, unless rank 3 misbehaves."""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

import torch
import torch.distributed as dist

JOINS, LATE, OTHER_CALL, DIES = "joins", "sleeps 2 s", "calls barrier instead", "is killed"
SHAPE = "passes another shape"


class SumResult(NamedTuple):
    """What one rank held before and after the sum, its process, and its seconds in the call."""

    process: int
    before: float
    after: float
    seconds: float


def run_sum(rank_3: str = JOINS, **numbers: float) -> SumResult:
    """Each rank brings a number, `x_0` is rank 0's; afterwards all that join have the sum."""
    dist.init_process_group("gloo")  # x is on the CPU, also where each rank has a GPU
    rank = dist.get_rank()
    x = torch.tensor([float(numbers.get(f"x_{rank}", rank + 1))])
    before = x.item()
    if rank == 3:
        x = misbehave(rank_3, x)
    start = time.perf_counter()
    dist.all_reduce(x)
    return SumResult(os.getpid(), before, x[0].item(), time.perf_counter() - start)


def misbehave(how: str, x: torch.Tensor) -> torch.Tensor:
    """Be late, call something else, be killed, or return another tensor."""
    if how == LATE:
        time.sleep(2)
    if how == OTHER_CALL:
        dist.barrier()
    if how == DIES:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    return torch.cat([x, x]) if how == SHAPE else x
